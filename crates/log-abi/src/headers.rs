//! The C and C++ headers as text, for whoever compiles sources that include them.

/// Every header of `include/simpler`, as its name there and its text.
pub const HEADERS: [(&str, &str); 7] = [
    ("device_log.h", include_str!("../include/simpler/device_log.h")),
    ("host_log_binding.h", include_str!("../include/simpler/host_log_binding.h")),
    ("host_log_state.h", include_str!("../include/simpler/host_log_state.h")),
    ("host_span.h", include_str!("../include/simpler/host_span.h")),
    ("log_level.h", include_str!("../include/simpler/log_level.h")),
    ("strace.h", include_str!("../include/simpler/strace.h")),
    ("unified_log.h", include_str!("../include/simpler/unified_log.h")),
];
