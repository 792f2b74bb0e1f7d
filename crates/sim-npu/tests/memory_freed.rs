//! What happens to device memory at the chip's end. Alone in its process: no other thread may map the place.

use simpler_platform::Platform;

mod support;

#[test]
fn dropping_the_chip_unmaps_its_memory() {
    let chip = support::chip();
    let buffer = chip.allocate(64 << 20).unwrap();
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split_once(' ').unwrap().0;
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            (hex(start)..hex(end)).contains(&buffer.0)
        })
    };
    assert!(mapped());
    drop(chip);
    assert!(!mapped());
}
