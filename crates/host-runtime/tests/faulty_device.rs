//! A device that fails, or that somebody waits for: what becomes of the open run, its context and its spans.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a caller in C has no blocks")]

mod support;

use std::ffi::{CStr, c_void};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use simpler_host_runtime::host_runtime::*;
use simpler_host_runtime::{Architecture, Device, SimplerContext};
use simpler_platform::{AicpuProgram, DeviceAddr, Launched, Platform, PlatformError, Profile};
use simpler_scenes::Scene;
use simpler_sim_npu::{SimNpu, SimOptions};
use support::owner::{flushed_lines, in_own_process, log_to_folder, spans, wait_for};
use support::{image, roots, tree};

/// Numbers of the scene; so many bytes are copied of nothing but a tensor.
const COUNT: u32 = 11;
const TENSOR_BYTES: usize = COUNT as usize * 4;

/// Launches and allocations panic.
static PANICS: AtomicBool = AtomicBool::new(false);
/// Results are not copied back.
static KEEPS_RESULTS: AtomicBool = AtomicBool::new(false);

/// What is copied to the device waits as long as the first is set, and says so in the second.
static HOLDS_COPIES: AtomicBool = AtomicBool::new(false);
static HAS_A_COPY: AtomicBool = AtomicBool::new(false);

struct Faulty(Arc<SimNpu>);

impl Platform for Faulty {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }
    fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        assert!(!PANICS.load(Ordering::Relaxed), "on purpose");
        self.0.allocate(bytes)
    }
    fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError> {
        self.0.release(addr)
    }
    fn copy_to_device(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError> {
        if HOLDS_COPIES.load(Ordering::Relaxed) {
            HAS_A_COPY.store(true, Ordering::Release);
            wait_for("the copy is let go", || !HOLDS_COPIES.load(Ordering::Relaxed));
        }
        self.0.copy_to_device(dst, src)
    }
    fn copy_to_host(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError> {
        if KEEPS_RESULTS.load(Ordering::Relaxed) && dst.len() == TENSOR_BYTES {
            return Err(PlatformError::Copy { what: "a result".to_owned(), why: "it is kept".to_owned() });
        }
        self.0.copy_to_host(dst, src)
    }
    fn load_kernel(&self, image: &[u8], name: &str) -> Result<u64, PlatformError> {
        self.0.load_kernel(image, name)
    }
    fn host_view(&self, addr: DeviceAddr) -> Option<*mut u8> {
        self.0.host_view(addr)
    }
    fn counter(&self) -> Option<u64> {
        self.0.counter()
    }
    fn launch(&self, program: Arc<dyn AicpuProgram>) -> Result<Box<dyn Launched>, PlatformError> {
        assert!(!PANICS.load(Ordering::Relaxed), "on purpose");
        self.0.launch(program)
    }
}

static FAULTY: Architecture = Architecture {
    name: "faulty",
    attach: |_| {
        let npu = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap();
        Ok(Device { platform: Arc::new(Faulty(npu)), claim: Box::new(()) })
    },
};

/// A context with a scene, and a request to run it.
struct Bench {
    context: *mut SimplerContext,
    scene: Scene,
    tensors: Vec<SimplerRunTensor>,
    scalars: Vec<u64>,
    callable: u64,
    block: [u64; 8],
}

impl Bench {
    fn new() -> Self {
        Self::with_pipeline_of(1)
    }

    fn with_pipeline_of(pipeline_depth: u32) -> Self {
        let mut scene = simpler_scenes::vector_add(COUNT, 1);
        let image = image(&scene);
        scene.reset();
        let args = scene.args();
        let bytes = |bytes: &[u8]| SimplerBytes { data: bytes.as_ptr().cast(), size: bytes.len() as u64 };
        let kernel = SimplerKernelImage {
            name: c"add".as_ptr(),
            object: bytes(&image.kernels[0].bytes),
            kind: image.kernels[0].kind as i32,
            reserved: 0,
        };
        let record = SimplerCallableImage {
            name: c"vector_add".as_ptr(),
            orchestration: bytes(&image.orchestration),
            kernels: &kernel,
            kernel_count: 1,
            reserved: 0,
        };
        let mut callable = 0;
        // SAFETY: what is handed in lives on; so with all calls here.
        let context = unsafe {
            let config = SimplerContextConfig { graph_runtime: TENSORMAP_AND_RINGBUFFER, pipeline_depth };
            let context = create_context(&FAULTY, &config);
            assert_eq!(init(context, 0, null(), null(), null(), 0), 0);
            assert_eq!(register_callable(context, &record, &mut callable), 0);
            context
        };
        let tensors = args.tensors.iter();
        let tensors = tensors.map(|arg| SimplerRunTensor { tensor: arg.tensor, arg_use: arg.arg_use as u64 });
        Self { context, scene, tensors: tensors.collect(), scalars: args.scalars, callable, block: [0; 8] }
    }

    fn request(&self) -> SimplerRunRequest {
        SimplerRunRequest {
            callable: self.callable,
            tensors: self.tensors.as_ptr(),
            scalars: self.scalars.as_ptr(),
            tensor_count: self.tensors.len() as u32,
            scalar_count: self.scalars.len() as u32,
            config: null(),
            run_id: 0,
            dispatch_id: 0,
            slot: ANY_SLOT,
            reserved: 0,
        }
    }

    fn storage(&mut self) -> *mut c_void {
        assert_eq!((run_storage_size(), run_storage_alignment()), (64, 8));
        self.block.as_mut_ptr().cast()
    }

    fn text(&self) -> String {
        let mut text = [0_u8; 1024];
        // SAFETY: a buffer of this size.
        unsafe { last_error(self.context, text.as_mut_ptr().cast(), text.len()) };
        CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
    }

    fn destroy(&self) {
        // SAFETY: the last call.
        assert_eq!(unsafe { destroy_context(self.context) }, 0, "{}", self.text());
    }
}

#[test]
fn a_panic_in_a_phase_ends_the_run_and_poisons_the_context() {
    in_own_process("a_panic_in_a_phase_ends_the_run_and_poisons_the_context", || {
        let dir = log_to_folder();
        let mut bench = Bench::new();
        let (context, storage, request) = (bench.context, bench.storage(), bench.request());
        // SAFETY: as above.
        unsafe {
            assert_eq!(run_prepare(context, storage, &request), 0, "{}", bench.text());
            PANICS.store(true, Ordering::Relaxed);
            assert_eq!(run_launch(context, storage), -1);
            assert_eq!(bench.text(), "the host runtime failed inside: on purpose");
            assert_eq!(run_finalize(context, storage), -1);
            assert!(bench.text().contains("is stale"), "{}", bench.text());
        }
        let spans = spans(&flushed_lines(dir.path()));
        let roots = roots(&spans);
        assert_eq!(roots.len(), 1, "its root is closed");
        assert!(tree(&spans, roots[0].inv).contains(&(1, "simpler_run.validate")));
        assert_eq!(simpler_host_log::context().inv, 0);
        bench.destroy();
    });
}

#[test]
fn the_open_runs_of_a_poisoned_context_end_with_their_own_results() {
    in_own_process("the_open_runs_of_a_poisoned_context_end_with_their_own_results", || {
        struct Everywhere(*mut SimplerContext, SimplerRunRequest);
        // SAFETY: the header lets any thread call.
        unsafe impl Sync for Everywhere {}
        let mut bench = Bench::with_pipeline_of(2);
        let (context, storage, request) = (bench.context, bench.storage(), bench.request());
        let (launched, poisoned) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = &Everywhere(context, request);
        // SAFETY: as above.
        unsafe {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let Everywhere(context, request) = shared;
                    let mut block = [0_u64; 8];
                    let storage = block.as_mut_ptr().cast();
                    assert_eq!(run_prepare(*context, storage, request), 0);
                    assert_eq!(run_launch(*context, storage), 0);
                    assert_eq!(run_wait(*context, storage), 0);
                    launched.store(true, Ordering::Release);
                    wait_for("the poisoning", || poisoned.load(Ordering::Acquire));
                    let results = [run_poll, run_wait, run_finalize].map(|phase| phase(*context, storage));
                    assert_eq!(results, [1, 0, 0]);
                    assert_eq!(run_prepare(*context, storage, request), -1);
                });
                wait_for("the other run", || launched.load(Ordering::Acquire) || other.is_finished());
                assert_eq!(run_prepare(context, storage, &request), 0, "{}", bench.text());
                let (open, mut address) = (bench.block, 0);
                PANICS.store(true, Ordering::Relaxed);
                assert_eq!(malloc(context, 1, &mut address), -1);
                assert_eq!(bench.text(), "the host runtime failed inside: on purpose");
                PANICS.store(false, Ordering::Relaxed);
                assert_eq!(destroy_context(context), -1);
                assert!(bench.text().contains("1 runs of other threads are open"), "{}", bench.text());
                poisoned.store(true, Ordering::Release);
                // Its launch is refused, and has ended it.
                assert_eq!(run_launch(context, storage), -1);
                assert!(bench.text().contains("is poisoned"), "{}", bench.text());
                assert_ne!(bench.block, open);
                assert_eq!(run_finalize(context, storage), -1);
                assert!(bench.text().contains("holds no run"), "{}", bench.text());
            });
        }
        bench.scene.check().unwrap();
        bench.destroy();
    });
}

#[test]
fn a_failure_of_finalize_wins_over_a_wait_that_went_well() {
    let mut bench = Bench::new();
    let (context, storage, request) = (bench.context, bench.storage(), bench.request());
    KEEPS_RESULTS.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe {
        assert_eq!(run_prepare(context, storage, &request), 0, "{}", bench.text());
        assert_eq!(run_launch(context, storage), 0);
        assert_eq!(run_wait(context, storage), 0);
        assert_eq!(run_finalize(context, storage), -1);
        assert!(bench.text().contains("it is kept"), "{}", bench.text());
        assert_eq!(run(context, &request), -1);
        assert!(bench.text().contains("it is kept"), "{}", bench.text());
        KEEPS_RESULTS.store(false, Ordering::Relaxed);
        assert_eq!(run(context, &request), 0, "the next run starts afresh: {}", bench.text());
    }
    bench.scene.check().unwrap();
    bench.destroy();
}

#[test]
fn a_run_that_is_prepared_while_its_context_is_finalized_comes_too_late() {
    struct Everywhere(*mut SimplerContext, SimplerRunRequest);
    // SAFETY: the header lets any thread call.
    unsafe impl Sync for Everywhere {}
    let bench = Bench::new();
    let shared = &Everywhere(bench.context, bench.request());
    HOLDS_COPIES.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (Everywhere(context, request), mut block) = (shared, [0_u64; 8]);
            // SAFETY: as above.
            let prepared = unsafe { run_prepare(*context, block.as_mut_ptr().cast(), request) };
            let mut text = [0_u8; 1024];
            // SAFETY: a buffer of this size.
            unsafe { last_error(*context, text.as_mut_ptr().cast(), text.len()) };
            (prepared, CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned(), block)
        });
        wait_for("the preparation", || HAS_A_COPY.load(Ordering::Acquire));
        // SAFETY: as above.
        assert_eq!(unsafe { finalize(bench.context) }, 0, "{}", bench.text());
        HOLDS_COPIES.store(false, Ordering::Relaxed);
        let (prepared, text, block) = other.join().unwrap();
        assert_eq!((prepared, block), (-1, [0; 8]));
        assert!(text.contains("was finalized"), "{text}");
    });
    bench.destroy();
}

#[test]
fn a_thread_goes_on_although_another_one_waits_for_its_run() {
    let threads = std::thread::spawn(go_on_while_another_one_waits);
    wait_for("both threads end", || threads.is_finished());
    threads.join().unwrap();
}

fn go_on_while_another_one_waits() {
    struct Everywhere(*mut SimplerContext);
    // SAFETY: the header lets any thread call.
    unsafe impl Sync for Everywhere {}
    let mut bench = Bench::new();
    let (context, storage, request) = (bench.context, bench.storage(), bench.request());
    let (mut address, mut other, waiting) = (0, 0, AtomicI32::new(0));
    let shared = &Everywhere(context);
    // SAFETY: as above.
    unsafe {
        assert_eq!(malloc(context, 4, &mut address), 0);
        assert_eq!(run_prepare(context, storage, &request), 0);
        assert_eq!(run_launch(context, storage), 0);
        std::thread::scope(|scope| {
            let copy = scope.spawn(|| {
                let Everywhere(context) = *shared;
                waiting.store(libc::gettid(), Ordering::Release);
                copy_to(context, address, [0_u8; 4].as_ptr().cast(), 4)
            });
            wait_for("the other thread sleeps", || {
                let stat = format!("/proc/self/task/{}/stat", waiting.load(Ordering::Acquire));
                std::fs::read_to_string(stat).is_ok_and(|stat| stat.contains(") S "))
            });
            assert_eq!(malloc(context, 4, &mut other), 0);
            assert_eq!(finalize(context), 0, "{}", bench.text());
            assert_eq!(copy.join().unwrap(), 0);
        });
        assert_eq!(run_wait(context, storage), -1);
        assert!(bench.text().contains("is stale"), "{}", bench.text());
    }
    bench.scene.check().unwrap();
    bench.destroy();
}
