//! The exported names. A shared library exports every C name that it links, so they are made in the libraries themselves.

/// Makes a library export the functions of `host_runtime.h`, over an [`Architecture`](crate::Architecture). For the root
/// of a `cdylib`; once in each.
#[macro_export]
macro_rules! export_host_runtime {
    ($architecture:expr) => {
        const _: () = {
            use ::core::ffi::{c_char, c_int, c_void};
            use $crate::SimplerContext;
            use $crate::host_runtime as api;

            #[unsafe(no_mangle)]
            extern "C" fn simpler_host_runtime_abi() -> u32 {
                api::HOST_RUNTIME_ABI
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_create_context(
                config: *const api::SimplerContextConfig,
            ) -> *mut SimplerContext {
                // SAFETY: the header's obligations are the caller's; so with all that follow.
                unsafe { api::create_context(&$architecture, config) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_destroy_context(context: *mut SimplerContext) -> c_int {
                // SAFETY: as above.
                unsafe { api::destroy_context(context) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_init(
                context: *mut SimplerContext,
                device_id: i32,
                binaries: *const api::SimplerBinaries,
                dispatcher: *const api::SimplerBytes,
                prewarm: *const api::SimplerCallConfig,
                enable_sdma: c_int,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::init(context, device_id, binaries, dispatcher, prewarm, enable_sdma) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_finalize(context: *mut SimplerContext) -> c_int {
                // SAFETY: as above.
                unsafe { api::finalize(context) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_pipeline_depth(context: *mut SimplerContext) -> c_int {
                // SAFETY: as above.
                unsafe { api::pipeline_depth(context) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_malloc(
                context: *mut SimplerContext,
                bytes: u64,
                address: *mut u64,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::malloc(context, bytes, address) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_free(context: *mut SimplerContext, address: u64) -> c_int {
                // SAFETY: as above.
                unsafe { api::free(context, address) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_copy_to(
                context: *mut SimplerContext,
                destination: u64,
                source: *const c_void,
                bytes: u64,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::copy_to(context, destination, source, bytes) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_copy_from(
                context: *mut SimplerContext,
                destination: *mut c_void,
                source: u64,
                bytes: u64,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::copy_from(context, destination, source, bytes) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_register_callable(
                context: *mut SimplerContext,
                image: *const api::SimplerCallableImage,
                callable: *mut u64,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::register_callable(context, image, callable) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_unregister_callable(
                context: *mut SimplerContext,
                callable: u64,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::unregister_callable(context, callable) }
            }
            #[unsafe(no_mangle)]
            extern "C" fn simpler_run_storage_size() -> usize {
                api::run_storage_size()
            }
            #[unsafe(no_mangle)]
            extern "C" fn simpler_run_storage_alignment() -> usize {
                api::run_storage_alignment()
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_run_prepare(
                context: *mut SimplerContext,
                storage: *mut c_void,
                request: *const api::SimplerRunRequest,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::run_prepare(context, storage, request) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_run_launch(
                context: *mut SimplerContext,
                storage: *mut c_void,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::run_launch(context, storage) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_run_poll(
                context: *mut SimplerContext,
                storage: *mut c_void,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::run_poll(context, storage) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_run_wait(
                context: *mut SimplerContext,
                storage: *mut c_void,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::run_wait(context, storage) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_run_finalize(
                context: *mut SimplerContext,
                storage: *mut c_void,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::run_finalize(context, storage) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_run(
                context: *mut SimplerContext,
                request: *const api::SimplerRunRequest,
            ) -> c_int {
                // SAFETY: as above.
                unsafe { api::run(context, request) }
            }
            #[unsafe(no_mangle)]
            unsafe extern "C" fn simpler_last_error(
                context: *const SimplerContext,
                out: *mut c_char,
                size: usize,
            ) -> usize {
                // SAFETY: as above.
                unsafe { api::last_error(context, out, size) }
            }

            // The loader calls them by these types.
            const _: extern "C" fn() -> u32 = simpler_host_runtime_abi;
            const _: api::HostRuntimeApi = api::HostRuntimeApi {
                simpler_create_context,
                simpler_destroy_context,
                simpler_init,
                simpler_finalize,
                simpler_pipeline_depth,
                simpler_malloc,
                simpler_free,
                simpler_copy_to,
                simpler_copy_from,
                simpler_register_callable,
                simpler_unregister_callable,
                simpler_run_storage_size,
                simpler_run_storage_alignment,
                simpler_run_prepare,
                simpler_run_launch,
                simpler_run_poll,
                simpler_run_wait,
                simpler_run_finalize,
                simpler_run,
                simpler_last_error,
            };
        };
    };
}
