//! Launches: the gate, exclusivity, status, reuse of the threads.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use simpler_platform::{Platform, PlatformError};
use simpler_relax::{Deadline, EventCount, Relax};
use simpler_sim_npu::{Profile, STATUS_PROGRAM_PANICKED, SimNpu, SimOptions};

mod support;

use support::{LIMIT, program};

fn wait_for(event: &EventCount, what: &str, condition: impl Fn() -> bool) {
    let deadline = Deadline::after(LIMIT);
    let mut relax = Relax::new();
    loop {
        let seen = event.epoch();
        if condition() {
            return;
        }
        assert!(!deadline.passed(), "{what} did not happen");
        relax.wait(event, seen);
    }
}

/// Who executed: kernel thread ids, in the order of arrival.
#[derive(Default)]
struct Roll {
    threads: [AtomicI32; 8],
    arrived: AtomicUsize,
    bell: EventCount,
}

impl Roll {
    fn sign(&self) {
        // SAFETY: always sound.
        let thread = unsafe { libc::gettid() };
        let place = self.arrived.fetch_add(1, Ordering::AcqRel);
        self.threads[place].store(thread, Ordering::Release);
        self.bell.notify_all();
    }

    fn signed(&self) -> HashSet<i32> {
        self.threads
            .iter()
            .map(|thread| thread.load(Ordering::Acquire))
            .filter(|&thread| thread != 0)
            .collect()
    }
}

#[test]
fn exactly_the_logical_threads_execute_at_each_launch() {
    let chip = support::chip();
    for _ in 0..50 {
        let roll = Arc::new(Roll::default());
        let run = {
            let roll = Arc::clone(&roll);
            program(move |_, _| {
                roll.sign();
                // All four are inside at once: they are four threads, not one after the other.
                wait_for(&roll.bell, "the fourth arrival", || roll.signed().len() == 4);
                0
            })
        };
        assert_eq!(chip.launch(run).unwrap().wait(), 0);
        assert_eq!((roll.arrived.load(Ordering::Acquire), roll.signed().len()), (4, 4));
    }
}

#[test]
fn a_second_launch_while_one_runs_is_refused_and_a_later_one_is_not() {
    let chip = support::chip();
    let gate = Arc::new((AtomicBool::new(false), EventCount::new()));
    let first = {
        let gate = Arc::clone(&gate);
        program(move |_, _| {
            wait_for(&gate.1, "the gate", || gate.0.load(Ordering::Acquire));
            0
        })
    };
    let launched = chip.launch(first).unwrap();
    assert!(!launched.is_done());
    assert!(matches!(chip.launch(program(|_, _| 0)), Err(PlatformError::Launch(_))));
    gate.0.store(true, Ordering::Release);
    gate.1.notify_all();
    assert_eq!(launched.wait(), 0);
    assert_eq!(chip.launch(program(|_, _| 0)).unwrap().wait(), 0);
}

#[test]
fn a_launch_is_done_when_wait_would_not_wait() {
    let chip = support::chip();
    let launched = chip.launch(program(|_, _| 0)).unwrap();
    let deadline = Deadline::after(LIMIT);
    while !launched.is_done() {
        assert!(!deadline.passed());
        std::thread::yield_now();
    }
    assert_eq!(launched.wait(), 0);
}

#[test]
fn a_thousand_launches_reuse_the_threads() {
    let chip = support::chip();
    let mut threads = HashSet::new();
    let started = Instant::now();
    for _ in 0..1000 {
        let roll = Arc::new(Roll::default());
        let run = {
            let roll = Arc::clone(&roll);
            program(move |_, _| {
                roll.sign();
                0
            })
        };
        assert_eq!(chip.launch(run).unwrap().wait(), 0);
        assert_eq!(roll.arrived.load(Ordering::Acquire), 4);
        threads.extend(roll.signed());
    }
    assert!(threads.len() <= 6, "{threads:?}");
    // Tens of µs each where nothing else runs; the rest is for sanitizers and busy machines.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn the_first_failing_code_is_the_status() {
    let chip = support::chip();
    let failed = Arc::new((AtomicBool::new(false), EventCount::new()));
    let run = {
        let failed = Arc::clone(&failed);
        program(move |_, index| match index {
            2 => {
                failed.0.store(true, Ordering::Release);
                failed.1.notify_all();
                -5
            }
            // Returns long after: its code must not replace the first.
            3 => {
                wait_for(&failed.1, "the failure", || failed.0.load(Ordering::Acquire));
                let later = Deadline::after(Duration::from_millis(20));
                while !later.passed() {
                    std::thread::yield_now();
                }
                -100
            }
            _ => 0,
        })
    };
    assert_eq!(chip.launch(run).unwrap().wait(), -5);
    assert_eq!(chip.launch(program(|_, _| 0)).unwrap().wait(), 0);
}

#[test]
fn a_panic_fails_the_launch_and_leaves_the_chip_usable() {
    let chip = support::chip();
    for _ in 0..5 {
        let run = program(|_, index| if index == 1 { panic!("planted in a program") } else { 0 });
        assert_eq!(chip.launch(run).unwrap().wait(), STATUS_PROGRAM_PANICKED);
        assert_eq!(chip.launch(program(|_, _| 0)).unwrap().wait(), 0);
    }
}

#[test]
fn after_wait_nobody_holds_the_program() {
    let chip = support::chip();
    for _ in 0..100 {
        let run = program(|_, _| 0);
        assert_eq!(chip.launch(run.clone()).unwrap().wait(), 0);
        assert_eq!(Arc::strong_count(&run), 1);
    }
}

#[test]
fn a_wait_with_a_limit_says_whether_the_launch_has_ended() {
    let chip = support::chip();
    let released = Arc::new(AtomicUsize::new(0));
    let run = {
        let released = Arc::clone(&released);
        program(move |_, _| {
            while released.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            0
        })
    };
    let launched = chip.launch(run).unwrap();
    assert!(!launched.wait_for(Duration::from_millis(1)));
    released.store(1, Ordering::Release);
    assert!(launched.wait_for(Duration::from_secs(60)));
    assert_eq!(launched.wait(), 0);
}

/// The narrowest of some bracketed readings: the host's time and half the bracket's width in ns, and the cycles.
fn reading(chip: &SimNpu) -> (f64, f64, u64) {
    let epoch = *EPOCH;
    let one = |_| {
        let before = epoch.elapsed();
        let cycles = chip.counter().expect("the host can read it");
        let width = (epoch.elapsed() - before).as_nanos() as f64;
        (before.as_nanos() as f64 + width / 2.0, width / 2.0, cycles)
    };
    (0..100).map(one).min_by(|a, b| a.1.total_cmp(&b.1)).expect("some readings")
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

#[test]
fn the_counter_is_another_clock_than_the_hosts() {
    for profile in [Profile::a2a3sim(), Profile::a5sim()] {
        for ppm in [-50, 0, 50] {
            let options = SimOptions {
                counter_offset: Some(1 << 40),
                counter_rate_error_ppm: Some(ppm),
                ..SimOptions::default()
            };
            let hz = profile.counter_hz as f64;
            let chip = SimNpu::new(profile.clone(), options).unwrap();
            let start = reading(&chip);
            assert!((1 << 40..(1 << 40) + profile.counter_hz * 60).contains(&start.2), "{}", start.2);
            let later = Deadline::after(Duration::from_millis(50));
            while !later.passed() {
                std::thread::yield_now();
            }
            let end = reading(&chip);
            // Cycles too many, as the host's clock counts them, beyond what the brackets and a tick leave open.
            let ns = end.0 - start.0;
            let surplus = (end.2 - start.2) as f64 / hz * 1e9 - ns;
            let doubt = start.1 + end.1 + 1e9 / hz;
            // The source's rate is known to some 10 ppm.
            let expected = ns * f64::from(ppm) / 1e6;
            assert!(
                (surplus - expected).abs() <= doubt + ns * 20e-6,
                "{}: {surplus} ns more than the host's {ns}, {ppm} ppm are {expected}, ± {doubt}",
                profile.name
            );
        }
    }
}

#[test]
fn the_host_and_the_aicpu_threads_read_one_counter() {
    let chip = support::chip();
    let seen: Arc<[AtomicU64; 4]> = Arc::default();
    let run = {
        let seen = Arc::clone(&seen);
        program(move |aicpu, index| {
            seen[index].store(aicpu.cycles(), Ordering::Release);
            0
        })
    };
    let before = chip.counter().unwrap();
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
    let after = chip.counter().unwrap();
    let seen = seen.each_ref().map(|cycles| cycles.load(Ordering::Acquire));
    assert!(seen.iter().all(|cycles| (before..=after).contains(cycles)), "{before} {seen:?} {after}");
}

#[test]
fn a5_launches_fourteen_threads_of_which_five_survive() {
    let chip = SimNpu::new(Profile::a5sim(), SimOptions::default()).unwrap();
    let survivors = Arc::new(AtomicUsize::new(0));
    let run = {
        let survivors = Arc::clone(&survivors);
        program(move |_, _| {
            survivors.fetch_add(1, Ordering::AcqRel);
            0
        })
    };
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
    assert_eq!(survivors.load(Ordering::Acquire), 5);
    let profile = chip.profile();
    assert_eq!((profile.aicpu_launched, profile.counter_hz, profile.cores()), (14, 1_000_000_000, 24));
}

#[test]
fn an_event_out_of_range_wakes_nobody_and_harms_nobody() {
    let chip = support::chip();
    let run = program(|aicpu, _| {
        aicpu.event(4).notify_all();
        aicpu.event(usize::MAX).notify_one();
        0
    });
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
}

#[test]
fn a_chip_dropped_in_the_middle_of_a_launch_ends_it_first() {
    let ended = Arc::new(AtomicUsize::new(0));
    let chip = support::chip();
    let run = {
        let ended = Arc::clone(&ended);
        program(move |_, _| {
            let later = Deadline::after(Duration::from_millis(5));
            while !later.passed() {
                std::thread::yield_now();
            }
            ended.fetch_add(1, Ordering::AcqRel);
            0
        })
    };
    let launched = chip.launch(run).unwrap();
    drop(chip);
    assert_eq!(ended.load(Ordering::Acquire), 4);
    assert!(launched.is_done());
}

#[test]
fn impossible_profiles_are_refused() {
    let profile = Profile::a2a3sim();
    for bad in [
        Profile { clusters: 0, ..profile.clone() },
        Profile { clusters: 22, ..profile.clone() },
        Profile { aicpu_logical: 7, ..profile.clone() },
        Profile { aicpu_logical: 0, ..profile.clone() },
    ] {
        assert!(matches!(SimNpu::new(bad, SimOptions::default()), Err(PlatformError::Launch(_))));
    }
    let most = Profile { clusters: 21, ..profile };
    assert_eq!(
        SimNpu::new(most, SimOptions { core_threads: Some(1000), ..SimOptions::default() })
            .unwrap()
            .core_threads(),
        63
    );
}
