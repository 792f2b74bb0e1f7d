//! The macros: they capture the place of the call and keep arguments unevaluated while the level is muted.

/// Logs a formatted record at a level: `log_at!(Level::Warn, "{} of {} pages", used, all)`.
///
/// Nothing is evaluated unless the level is enabled. The record names the enclosing function, the file and
/// the line. A body that does not fit 512 bytes is cut there and ends in `~`.
#[macro_export]
macro_rules! log_at {
    ($level:expr, $($message:tt)+) => {{
        let level = $level;
        if $crate::enabled(level) {
            let mut frame = $crate::__private::begin_text(
                level,
                $crate::function_name!(),
                const { $crate::__private::base_name(::core::file!()) },
                ::core::line!(),
            );
            $crate::__private::write_message!([$crate] frame, $($message)+);
            $crate::__private::emit_text(&mut frame);
        }
    }};
}

/// Logs at DEBUG; see [`log_at!`].
#[macro_export]
macro_rules! log_debug {
    ($($message:tt)+) => { $crate::log_at!($crate::Level::Debug, $($message)+) };
}

/// Logs at INFO; see [`log_at!`].
#[macro_export]
macro_rules! log_info {
    ($($message:tt)+) => { $crate::log_at!($crate::Level::Info, $($message)+) };
}

/// Logs at TIMING; see [`log_at!`]. An interval is a span, not a line: use [`span!`](crate::span!).
#[macro_export]
macro_rules! log_timing {
    ($($message:tt)+) => { $crate::log_at!($crate::Level::Timing, $($message)+) };
}

/// Logs at WARN; see [`log_at!`].
#[macro_export]
macro_rules! log_warn {
    ($($message:tt)+) => { $crate::log_at!($crate::Level::Warn, $($message)+) };
}

/// Logs at ERROR; see [`log_at!`].
#[macro_export]
macro_rules! log_error {
    ($($message:tt)+) => { $crate::log_at!($crate::Level::Error, $($message)+) };
}

/// The bare name of the enclosing function, without its path.
#[macro_export]
macro_rules! function_name {
    () => {{
        fn here() {}
        static NAME: $crate::__private::FunctionName = $crate::__private::FunctionName::new();
        NAME.within(::core::any::type_name_of_val(&here))
    }};
}

/// Opens a span that ends when the returned guard is dropped.
///
/// `span!("simpler_run.bind.args", ntensor = 4)` takes a name and any number of `key = value` attributes,
/// whose values are formatted with `Display` when the span opens. A value must not hold a space, which
/// separates attributes; all attributes together have 192 bytes. While TIMING is muted nothing is
/// evaluated, the clock is not read, and the nesting does not change.
///
/// ```
/// use simpler_host_log::span;
///
/// let tensors = [1, 2, 3];
/// {
///     let _span = span!("simpler_run.bind.args", ntensor = tensors.len());
///     // the work that the span measures
/// } // emitted here
/// ```
#[cfg(feature = "host-strace")]
#[macro_export]
macro_rules! span {
    ($name:expr) => {
        $crate::Span::enter($name)
    };
    ($name:expr, $first_key:ident = $first_value:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::AttributedSpan::enter($name, |attributes| {
            use $crate::__private::{PutDisplay as _, PutPlain as _};
            attributes.key(::core::concat!(::core::stringify!($first_key), "="));
            // What does not fit is cut, and a value that fails ends where it does.
            let _ = (&$crate::__private::Value(&$first_value)).put(attributes);
            $(
                attributes.key(::core::concat!(" ", ::core::stringify!($key), "="));
                let _ = (&$crate::__private::Value(&$value)).put(attributes);
            )*
        })
    };
}

/// Opens no span: host spans are compiled out. Neither the name nor the attributes are evaluated.
#[cfg(not(feature = "host-strace"))]
#[macro_export]
macro_rules! span {
    ($name:expr $(, $key:ident = $value:expr)* $(,)?) => {{
        // Named, so that the arguments count as used, but in code that is never generated.
        if false {
            let _ = &$name;
            $(let _ = &$value;)*
        }
        $crate::NoSpan
    }};
}
