//! The C side as text, for whoever compiles code for the chip.

/// Every file of `include`, as its name there and its text. A build for the chip searches `include/silicon` before
/// the headers of the host's log, so that `<simpler/unified_log.h>` is the device's.
pub const HEADERS: [(&str, &str); 2] = [
    ("silicon/simpler/unified_log.h", include_str!("../include/silicon/simpler/unified_log.h")),
    ("simpler/aicpu_args.h", include_str!("../include/simpler/aicpu_args.h")),
];

/// The device's end of the log and the init kernel, C11 or C++11: part of the binary that the AICPU loads.
pub const DEVICE_LOG_SOURCE: &str = include_str!("../device/device_log.c");
