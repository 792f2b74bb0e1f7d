//! Device memory: alignment, bounds, release.

use simpler_platform::{DeviceAddr, Platform, PlatformError};

mod support;

fn is_bad_range(result: Result<(), PlatformError>) -> bool {
    matches!(result, Err(PlatformError::BadRange { .. }))
}

#[test]
fn what_is_copied_in_comes_out() {
    let chip = support::chip();
    let buffer = chip.allocate(5000).unwrap();
    assert_eq!(buffer.0 % 1024, 0);
    let pattern: Vec<u8> = (0..5000_u32).map(|i| (i * 7) as u8).collect();
    chip.copy_to_device(buffer, &pattern).unwrap();
    let mut back = vec![0; 5000];
    chip.copy_to_host(&mut back, buffer).unwrap();
    assert_eq!(back, pattern);
    let mut middle = vec![0; 100];
    chip.copy_to_host(&mut middle, DeviceAddr(buffer.0 + 4900)).unwrap();
    assert_eq!(middle, pattern[4900..]);
    chip.release(buffer).unwrap();
}

#[test]
fn copies_outside_one_allocation_are_refused() {
    let chip = support::chip();
    let buffer = chip.allocate(2048).unwrap();
    let at = |offset: u64| DeviceAddr(buffer.0.wrapping_add(offset));
    assert!(is_bad_range(chip.copy_to_device(at(1), &[0; 2048])));
    assert!(is_bad_range(chip.copy_to_device(at(2048), &[0; 1])));
    assert!(is_bad_range(chip.copy_to_device(at(0), &[0; 2049])));
    assert!(is_bad_range(chip.copy_to_device(at(u64::MAX), &[0; 1])));
    assert!(is_bad_range(chip.copy_to_device(DeviceAddr(0), &[0; 1])));
    assert!(is_bad_range(chip.copy_to_host(&mut [0; 2], at(2047))));
    assert!(is_bad_range(chip.copy_to_host(&mut [0; 1], DeviceAddr(u64::MAX))));
    chip.copy_to_host(&mut [0; 1], at(2047)).unwrap();
}

#[test]
fn released_and_unknown_addresses_are_refused() {
    let chip = support::chip();
    let buffer = chip.allocate(4096).unwrap();
    assert!(is_bad_range(chip.release(DeviceAddr(buffer.0 + 1024))));
    chip.release(buffer).unwrap();
    assert!(is_bad_range(chip.release(buffer)));
    assert!(is_bad_range(chip.copy_to_device(buffer, &[1])));
    assert!(is_bad_range(chip.release(DeviceAddr(0))));
}

#[test]
fn sizes_that_cannot_be_had_are_refused() {
    let chip = support::chip();
    for bytes in [0, usize::MAX, usize::MAX / 2] {
        assert!(matches!(chip.allocate(bytes), Err(PlatformError::Allocate { .. })), "{bytes}");
    }
}

#[test]
fn allocations_of_all_sizes_are_distinct_and_aligned() {
    let chip = support::chip();
    let mut ranges: Vec<(u64, u64)> = [1, 1023, 1024, 4097, 3 << 20, 1]
        .into_iter()
        .map(|bytes: usize| (chip.allocate(bytes).unwrap().0, bytes as u64))
        .collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(start, _)| start % 1024 == 0));
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
}
