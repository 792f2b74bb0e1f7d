//! What a C caller does wrong is refused with a sentence: every function, called as C would, over a simulated chip that
//! asks nobody for its device.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a caller in C has no blocks")]

mod support;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use simpler_host_runtime::host_runtime::*;
use simpler_host_runtime::{Architecture, Device, DeviceRequest, SimplerContext, sim};
use simpler_kernel_abi::{DType, HOST_MEMORY, SimplerTensor};
use simpler_platform::Profile;
use simpler_sim_npu::{SimNpu, SimOptions};

/// The device that fails inside.
const FAULTY: i32 = 13;

static BARE: Architecture = Architecture {
    name: "bare",
    attach: |DeviceRequest { device_id, .. }| {
        assert_ne!(*device_id, FAULTY, "on purpose");
        let platform = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap();
        Ok(Device { platform, claim: Box::new(()) })
    },
};

fn text(context: *const SimplerContext) -> String {
    let mut text = [0x55; 1024];
    // SAFETY: a live context or null, and a buffer of this size; so with all calls here.
    let length = unsafe { last_error(context, text.as_mut_ptr().cast(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap();
    assert_eq!(text.len(), length);
    text.to_owned()
}

/// A result that must be −1, and the sentence that must have these words.
#[track_caller]
fn refused(context: *const SimplerContext, result: c_int, words: &str) {
    assert_eq!(result, -1, "{words}");
    let text = text(context);
    assert!(text.contains(words), "{text:?} has no {words:?}");
}

fn created() -> *mut SimplerContext {
    // SAFETY: null is every default.
    let context = unsafe { create_context(&BARE, null()) };
    assert!(!context.is_null());
    context
}

fn begin(context: *mut SimplerContext, device: i32) -> c_int {
    // SAFETY: as above.
    unsafe { init(context, device, null(), null(), null(), 0) }
}

fn ready() -> *mut SimplerContext {
    let context = created();
    assert_eq!(begin(context, 0), 0);
    context
}

fn destroy(context: *mut SimplerContext) {
    // SAFETY: its last call.
    assert_eq!(unsafe { destroy_context(context) }, 0, "{}", text(context));
}

/// A block for a run.
#[repr(C, align(64))]
struct Block([u64; 16]);

impl Block {
    fn zeroed() -> Self {
        assert!(run_storage_size() <= size_of::<Self>() && run_storage_alignment() <= 64);
        Self([0; 16])
    }

    fn at(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// A registered callable without tasks.
fn empty_callable(context: *mut SimplerContext) -> u64 {
    let image = support::callable(
        "empty",
        "#include <simpler/orchestration.h>\n\
         SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,\n\
         const SimplerChipArgs *args) { (void)api; (void)run; (void)args; return 0; }\n",
        &[],
    );
    let mut callable = 0;
    let record = of_image(&image.orchestration);
    // SAFETY: the image lives on.
    assert_eq!(unsafe { register_callable(context, &record, &mut callable) }, 0, "{}", text(context));
    assert_ne!(callable, 0);
    callable
}

fn of_image(orchestration: &[u8]) -> SimplerCallableImage {
    SimplerCallableImage {
        name: c"empty".as_ptr(),
        orchestration: SimplerBytes { data: orchestration.as_ptr().cast(), size: orchestration.len() as u64 },
        kernels: null(),
        kernel_count: 0,
        reserved: 0,
    }
}

fn request(callable: u64) -> SimplerRunRequest {
    SimplerRunRequest {
        callable,
        tensors: null(),
        scalars: null(),
        tensor_count: 0,
        scalar_count: 0,
        config: null(),
        run_id: 0,
        dispatch_id: 0,
        slot: ANY_SLOT,
        reserved: 0,
    }
}

#[test]
fn a_null_argument_is_refused_by_every_function() {
    let (context, mut number, mut block) = (ready(), 0_u64, Block::zeroed());
    let callable = empty_callable(context);
    let nobody: *mut SimplerContext = null_mut();
    // SAFETY: as above.
    unsafe {
        for result in [
            destroy_context(nobody),
            begin(nobody, 0),
            finalize(nobody),
            pipeline_depth(nobody),
            malloc(nobody, 1, &mut number),
            free(nobody, 0),
            copy_to(nobody, 0, null(), 0),
            copy_from(nobody, null_mut(), 0, 0),
            register_callable(nobody, &of_image(&[]), &mut number),
            unregister_callable(nobody, 1),
            run_prepare(nobody, block.at(), &request(callable)),
            run_launch(nobody, block.at()),
            run_poll(nobody, block.at()),
            run_wait(nobody, block.at()),
            run_finalize(nobody, block.at()),
            run(nobody, &request(callable)),
        ] {
            refused(null(), result, "the context is null");
        }
        refused(context, malloc(context, 1, null_mut()), "place for the address is null");
        refused(context, copy_to(context, 0, null(), 1), "source of the copy is null");
        refused(context, copy_from(context, null_mut(), 0, 1), "destination of the copy is null");
        refused(context, register_callable(context, null(), &mut number), "the callable is null");
        let result = register_callable(context, &of_image(&[]), null_mut());
        refused(context, result, "place for the callable's id is null");
        let nameless = SimplerCallableImage { name: null(), ..of_image(&[]) };
        refused(context, register_callable(context, &nameless, &mut number), "callable's name is null");
        let kernels = SimplerCallableImage { kernel_count: 1, ..of_image(&[]) };
        refused(context, register_callable(context, &kernels, &mut number), "list of kernels is null");
        refused(context, run_prepare(context, null_mut(), &request(callable)), "run storage is null");
        refused(context, run_prepare(context, block.at(), null()), "run request is null");
        for phase in [run_launch, run_poll, run_wait, run_finalize] {
            refused(context, phase(context, null_mut()), "run storage is null");
        }
        refused(context, run(context, null()), "run request is null");
        let tensors = SimplerRunRequest { tensor_count: 1, ..request(callable) };
        refused(context, run(context, &tensors), "list of tensors is null");
        let scalars = SimplerRunRequest { scalar_count: 1, ..request(callable) };
        refused(context, run(context, &scalars), "list of scalars is null");
        assert_eq!(last_error(context, null_mut(), 0), text(context).len());
        assert_eq!(run(context, &request(callable)), 0, "{}", text(context));
    }
    destroy(context);
}

#[test]
fn what_a_request_or_an_image_cannot_mean_is_refused() {
    let (context, mut number) = (ready(), 0_u64);
    let callable = empty_callable(context);
    let tensor =
        |arg_use| SimplerRunTensor { tensor: SimplerTensor::whole(0, 0, DType::F32, HOST_MEMORY), arg_use };
    // SAFETY: as above.
    unsafe {
        let odd = tensor(5);
        let with_tensor = SimplerRunRequest { tensors: &odd, tensor_count: 1, ..request(callable) };
        refused(context, run(context, &with_tensor), "tensor 0 has the unknown use 5");
        for (tensor_count, scalar_count) in [(257, 0), (0, 129), (u32::MAX, u32::MAX)] {
            let many = SimplerRunRequest { tensor_count, scalar_count, ..request(callable) };
            refused(context, run(context, &many), "at most 256 and 128");
        }
        for slot in [1, i32::MAX, -2, i32::MIN] {
            let out = SimplerRunRequest { slot, ..request(callable) };
            refused(context, run(context, &out), &format!("pipeline slot {slot}"));
        }
        let reserved = SimplerRunRequest { reserved: 1, ..request(callable) };
        refused(context, run(context, &reserved), "reserved word of the run request");
        for unknown in [0, callable + 1, callable - 1, u64::MAX] {
            refused(context, run(context, &request(unknown)), "not registered");
            refused(context, unregister_callable(context, unknown), "not registered");
        }
        let config = SimplerCallConfig { enable_pmu: 1, ..SimplerCallConfig::default() };
        let with_config = SimplerRunRequest { config: &config, ..request(callable) };
        assert_eq!(run(context, &with_config), -5);
        assert!(text(context).contains("diagnostics that this version does not know"));
        assert_eq!(register_callable(context, &of_image(b"no object"), &mut number), -5);
        assert!(text(context).starts_with("empty: "), "{}", text(context));
        let odd = SimplerKernelImage {
            name: c"odd".as_ptr(),
            object: SimplerBytes { data: null(), size: 0 },
            kind: 2,
            reserved: 0,
        };
        let odd = SimplerCallableImage { kernels: &odd, kernel_count: 1, ..of_image(&[]) };
        refused(context, register_callable(context, &odd, &mut number), "no cores of kind 2");
        let huge = SimplerBytes { data: c"x".as_ptr().cast(), size: u64::MAX };
        let huge = SimplerCallableImage { orchestration: huge, ..of_image(&[]) };
        refused(context, register_callable(context, &huge, &mut number), "more than memory can hold");
        assert_eq!(number, 0);
        let config = SimplerContextConfig { graph_runtime: 2, pipeline_depth: 0 };
        assert!(create_context(&BARE, &config).is_null());
        assert_eq!(text(null()), "there is no graph runtime 2");
        let config = SimplerContextConfig { graph_runtime: 0, pipeline_depth: 3 };
        assert!(create_context(&BARE, &config).is_null());
        assert_eq!(text(null()), "a pipeline of 3 runs: 1 to 2");
    }
    destroy(context);
}

#[test]
fn a_context_has_one_device_and_one_life() {
    let (context, mut number) = (created(), 0_u64);
    // SAFETY: as above.
    unsafe {
        refused(context, malloc(context, 1, &mut number), "no device yet");
        refused(context, pipeline_depth(context), "no device yet");
        refused(context, begin(context, -1), "there is no device -1");
        let config = SimplerCallConfig { aicpu_thread_num: -1, ..SimplerCallConfig::default() };
        assert_eq!(init(context, 0, null(), null(), &config, 0), -5);
        assert_eq!(begin(context, 0), 0);
        refused(context, begin(context, 0), "initialized once");
        assert_eq!(pipeline_depth(context), 1);
        assert_eq!(finalize(context), 0);
        refused(context, begin(context, 0), "was finalized");
        refused(context, malloc(context, 1, &mut number), "was finalized");
        assert_eq!(finalize(context), 0);
    }
    destroy(context);
}

#[test]
fn a_simulated_chip_takes_no_objects() {
    // SAFETY: as above.
    unsafe {
        let context = create_context(&sim::A2A3SIM, null());
        let (none, some) = (
            SimplerBytes { data: null(), size: 0 },
            SimplerBytes { data: c"object".as_ptr().cast(), size: 6 },
        );
        let begin = |aicpu, aicore, dispatcher: SimplerBytes| {
            init(context, 0, &SimplerBinaries { aicpu, aicore }, &dispatcher, null(), 0)
        };
        refused(context, begin(some, none, none), "the AICPU object (6 bytes) must be left out");
        refused(context, begin(none, some, none), "the AICore object (6 bytes) must be left out");
        refused(context, begin(none, none, some), "the dispatcher object (6 bytes) must be left out");
        let lost = SimplerBytes { data: null(), size: 6 };
        refused(context, begin(lost, none, none), "the AICPU object is null");
        refused(context, begin(none, none, none), "the sim context library is not loaded");
        destroy(context);
    }
}

#[test]
fn storage_is_looked_at_before_it_is_used() {
    let (context, other, mut block) = (ready(), ready(), Block::zeroed());
    let request = request(empty_callable(context));
    // SAFETY: as above.
    unsafe {
        let odd = block.at().byte_add(4);
        refused(context, run_prepare(context, odd, &request), "is not aligned to 8 bytes");
        refused(context, run_wait(context, odd), "is not aligned to 8 bytes");
        for word in 0..run_storage_size() / 8 {
            let mut dirty = Block::zeroed();
            dirty.0[word] = 1;
            refused(context, run_prepare(context, dirty.at(), &request), "was not zeroed");
            refused(context, run_launch(context, dirty.at()), "was not zeroed");
        }
        for phase in [run_launch, run_poll, run_wait, run_finalize] {
            refused(context, phase(context, block.at()), "holds no run");
        }
        assert_eq!(run_prepare(context, block.at(), &request), 0, "{}", text(context));
        assert_eq!(block.0[0].to_ne_bytes(), *b"SMPLRUN1");
        refused(context, run_prepare(context, block.at(), &request), "a run that is not finalized");
        refused(other, run_launch(other, block.at()), "a run of another context");
        refused(context, run_poll(context, block.at()), "was not launched");
        refused(context, run_wait(context, block.at()), "was not launched");
        let mut copy = Block(block.0);
        assert_eq!(run_launch(context, block.at()), 0, "{}", text(context));
        refused(context, run_launch(context, block.at()), "was launched before");
        assert_eq!(run_wait(context, block.at()), 0);
        assert_eq!((run_poll(context, block.at()), run_wait(context, block.at())), (1, 0));
        assert_eq!(run_finalize(context, block.at()), 0);
        refused(context, run_finalize(context, block.at()), "holds no run");
        refused(context, run_finalize(context, copy.at()), "is stale");
        // It serves again, also another context, and one that was never launched ends with a word about that.
        let of_other = SimplerRunRequest { callable: empty_callable(other), ..request };
        assert_eq!(run_prepare(other, block.at(), &of_other), 0, "{}", text(other));
        refused(other, run_finalize(other, block.at()), "was not launched");
        assert_eq!(run(other, &of_other), 0, "{}", text(other));
    }
    destroy(context);
    destroy(other);
}

#[test]
fn a_run_stays_on_the_thread_that_prepared_it() {
    struct Everywhere(*mut SimplerContext, *mut c_void);
    // SAFETY: the scope below ends before what they point to.
    unsafe impl Sync for Everywhere {}
    let (context, mut block) = (ready(), Block::zeroed());
    let request = request(empty_callable(context));
    // SAFETY: as above.
    unsafe {
        assert_eq!(run_prepare(context, block.at(), &request), 0);
        let shared = &Everywhere(context, block.at());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let Everywhere(context, block) = *shared;
                for phase in [run_launch, run_poll, run_wait, run_finalize] {
                    refused(context, phase(context, block), "prepared by another thread");
                }
                refused(context, finalize(context), "1 runs of other threads are open");
                refused(context, destroy_context(context), "1 runs of other threads are open");
            });
        });
        // A thread's failures are not another one's.
        assert_eq!(text(context), "");
        assert_eq!(run_launch(context, block.at()), 0);
        assert_eq!(run_finalize(context, block.at()), 0);
    }
    destroy(context);
}

#[test]
fn a_panic_is_an_error_and_poisons_the_context() {
    let (context, mut number) = (created(), 0_u64);
    refused(
        context,
        begin(context, FAULTY),
        "the host runtime failed inside: assertion `left != right` failed",
    );
    refused(context, begin(context, 0), "is poisoned");
    // SAFETY: as above.
    refused(context, unsafe { malloc(context, 1, &mut number) }, "is poisoned");
    destroy(context);
    destroy(ready());
}
