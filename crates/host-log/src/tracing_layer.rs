//! The spans and events of the `tracing` crate in the host log (feature `tracing`).
//!
//! A program that is instrumented with `tracing` alone needs one line more: [`install`], or a
//! [`HostLogLayer`] in a registry of its own, next to other layers.
//!
//! **A span** becomes one span record when it closes, whatever its level: spans are TIMING.
//!
//! - *Name*: `ext.<producer>.<span>`. The word `ext` keeps a foreign span from posing as one of the runtime's;
//!   the producer is the program's name, given once.
//! - *Time*: from the first time that it is entered to the last time that it is left. One that is never entered
//!   lasts from its creation to its close. One that is entered several times, as a future is with every poll,
//!   carries the time spent inside as `busy_ns`, before its fields.
//! - *Place*: inside an invocation of the runtime, it carries that invocation's `inv` and `hid`, so that a
//!   search for either finds it; outside, and where its parent is outside as well, both are 0. Its depth is the
//!   number of spans around it, those of the runtime and foreign ones together. Which it is, is settled when it
//!   is created. Nothing of the runtime is changed by a foreign span, and readers leave it out of every
//!   invocation.
//! - *Thread*: the one on which it closes. A span that is handed on is thus shown where it ended.
//! - *Fields*: `key=value`, as many as fit 192 bytes. A space would end a value, so it is written `%20`; the
//!   record then escapes the `%` as it does any. Spaces and `=` in a key become `_`, and a field called `clk`,
//!   which would claim another clock, becomes `_clk`.
//!
//! **An event** becomes a text record: TRACE and DEBUG are DEBUG, the others keep their name. In front stands
//! its target, dotted (`my_app::net` as `my_app.net`), then file and line, the message, and its fields.
//!
//! **What is muted is not formatted**: our threshold is asked at every callsite each time, so a change is heeded
//! at once. After [`install`], which makes the layer the only one, the fields of what is muted are not even
//! evaluated, and no span is made; in a registry of the program's own they are, since other layers may want them.
//! A span that was muted when it was created stays so. At the default threshold, TIMING, INFO events are muted
//! and spans are not.
//!
//! **A value that panics** while it is formatted for a span ends in `~` there, and the panic ends with it: past
//! the registry it would leave all spans around open for ever. In an event it goes on to the program, as it
//! does in our own macros, and takes that record along.
//!
//! The layer has no state but its name; what it knows of an open span lies in the registry's extensions, behind
//! the registry's lock for that span. So a child of a fork must leave alone what other threads of its parent had
//! open; the spans of the thread that forked go on in it. Like any global subscriber it is for programs, and for
//! libraries that stay loaded.
//!
//! ```
//! use simpler_host_log::{self as log, Config, Threshold, tracing_layer};
//!
//! let dir = tempfile::tempdir()?;
//! let config = Config { threshold: Threshold::INFO, directory: Some(dir.path()), ..Config::default() };
//! tracing_layer::install("shop", &config)?;
//!
//! tracing::info_span!("order", items = 3).in_scope(|| tracing::info!(total = 12, "paid"));
//!
//! log::flush(std::time::Duration::from_millis(1000))?;
//! let text = std::fs::read_to_string(dir.path().join(format!("host.{}.log", log::pid())))?;
//! assert!(text.contains("] paid total=12\n"));
//! assert!(text.contains(" name=ext.shop.order ") && text.contains(" items=3\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use simpler_record_format::NAME_BYTES;
use tracing_core::dispatcher::{Dispatch, SetGlobalDefaultError, set_global_default};
use tracing_core::field::{Field, Visit};
use tracing_core::span;
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use tracing_subscriber::{Layer, Registry};

use crate::__private::base_name;
use crate::foreign::{Bounded, CUT_MARGIN, ForeignAttributes, ForeignPlace};
use crate::target::Func;
use crate::{Config, Level, Location, SpanEvent, emit_span, enabled, monotonic_ns, span_enabled};

/// The word in front of a foreign span's name.
const EXTERNAL: &str = "ext.";

/// The producer of a program that gives no name.
const PRODUCER: &str = "app";

/// The longest producer: half of a name is the span's own.
const PRODUCER_BYTES: usize = NAME_BYTES / 2 - EXTERNAL.len();

/// The host log as a layer, for a registry of the program's own:
/// `tracing_subscriber::registry().with(HostLogLayer::new("shop")).with(another).init()`.
///
/// It bars nothing from the other layers. A registry has place for one of them.
#[derive(Clone, Debug)]
pub struct HostLogLayer {
    /// `ext.<producer>.`
    prefix: Box<str>,
    /// Whether what is muted may be barred from the whole registry.
    alone: bool,
}

impl HostLogLayer {
    /// A layer whose spans are called `ext.<producer>.<span>`.
    ///
    /// A producer is one word of ASCII letters, digits, `-` and `_`; what else it holds is written `_`, and one
    /// of more than 28 bytes is cut there and ends in `~`. An empty one is `app`.
    pub fn new(producer: &str) -> HostLogLayer {
        let mut prefix = String::from(EXTERNAL);
        let word = if producer.is_empty() { PRODUCER } else { producer };
        let literal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        if word.chars().count() <= PRODUCER_BYTES {
            prefix.extend(word.chars().map(literal));
        } else {
            prefix.extend(word.chars().take(PRODUCER_BYTES - 1).map(literal));
            prefix.push('~');
        }
        prefix.push('.');
        HostLogLayer { prefix: prefix.into(), alone: false }
    }
}

impl Default for HostLogLayer {
    /// The layer of the producer `app`.
    fn default() -> Self {
        Self::new(PRODUCER)
    }
}

/// Sets up the host log ([`init`](crate::init)) and makes it the program's only subscriber.
///
/// # Errors
///
/// When the program has a global subscriber already: nothing is set up then. Or when the log cannot be set up.
pub fn install(producer: &str, config: &Config<'_>) -> Result<(), InstallError> {
    let subscriber = Registry::default().with(HostLogLayer { alone: true, ..HostLogLayer::new(producer) });
    set_global_default(Dispatch::new(subscriber)).map_err(InstallError::Subscriber)?;
    crate::init(config).map_err(InstallError::Log)
}

/// Why [`install`] failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstallError {
    /// The program has a global subscriber.
    Subscriber(SetGlobalDefaultError),
    /// The host log cannot be set up.
    Log(crate::Error),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstallError::Subscriber(_) => "the program has a tracing subscriber already",
            InstallError::Log(_) => "the host log cannot be set up",
        })
    }
}

impl std::error::Error for InstallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InstallError::Subscriber(source) => Some(source),
            InstallError::Log(source) => Some(source),
        }
    }
}

fn is_wanted(metadata: &Metadata<'_>) -> bool {
    if metadata.is_span() { span_enabled() } else { enabled(level_of(metadata)) }
}

fn level_of(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        tracing_core::Level::TRACE | tracing_core::Level::DEBUG => Level::Debug,
        tracing_core::Level::INFO => Level::Info,
        tracing_core::Level::WARN => Level::Warn,
        tracing_core::Level::ERROR => Level::Error,
    }
}

impl<S> Layer<S> for HostLogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // An answer that is kept would outlive a change of the threshold.
        if self.alone { Interest::sometimes() } else { Interest::always() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        !self.alone || is_wanted(metadata)
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        if !span_enabled() {
            return;
        }
        // The program's code, which may do anything: no extension is locked meanwhile.
        let mut fields = ForeignAttributes::new();
        attributes.record(&mut Fields(&mut fields));
        let Some(span) = context.span(id) else { return };
        let parent = span.scope().skip(1).find_map(|span| span.extensions().get().map(Open::place));
        let place = ForeignPlace::below(parent, crate::context());
        span.extensions_mut().replace(Open { place, times: Times::created(monotonic_ns()), fields });
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(is_open) else { return };
        let mut fields = ForeignAttributes::new();
        values.record(&mut Fields(&mut fields));
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            open.fields.append(&fields);
        }
    }

    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.times.enter(monotonic_ns());
        }
    }

    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.times.leave(monotonic_ns());
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Open { place, times, fields }) = span.extensions_mut().remove() else { return };
        let (ts, dur) = times.window(monotonic_ns());
        let mut name = Name::new();
        name.push(&self.prefix);
        // A name's third word must not be empty, or nobody could tell whose span it is.
        match span.name() {
            "" => name.push("_"),
            word if word.starts_with('.') => {
                name.push("_");
                name.push(word);
            }
            word => name.push(word),
        }
        let mut attrs = ForeignAttributes::new();
        if let Some(busy_ns) = times.busy_ns() {
            attrs.pair("busy_ns", format_args!("{busy_ns}"));
        }
        attrs.append(&fields);
        let (inv, hid, depth) = (place.inv, place.hid, place.depth());
        emit_span(&SpanEvent { name: name.as_str(), inv, hid, depth, ts, dur, attrs: attrs.as_str() });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = level_of(metadata);
        if !enabled(level) {
            return;
        }
        let file = metadata.file().map(base_name);
        let location = file.zip(metadata.line()).map(|(file, line)| Location { file, line });
        let func = Func::of(metadata.target());
        crate::log(level, func.as_str(), location, format_args!("{}", Body(event)));
    }
}

fn is_open<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> bool {
    span.extensions().get::<Open>().is_some()
}

/// What is known of an open span.
struct Open {
    place: ForeignPlace,
    times: Times,
    fields: ForeignAttributes,
}

impl Open {
    fn place(&self) -> ForeignPlace {
        self.place
    }
}

/// When a span was entered and left, in ns of `CLOCK_MONOTONIC`.
struct Times {
    created: i64,
    /// The first time that it was entered.
    first: Option<i64>,
    /// The last time that it was left by the last one inside.
    last: i64,
    /// How many times it was entered with nobody inside.
    visits: u64,
    /// How many are inside: one span may be entered on several threads.
    inside: u32,
    /// Since when somebody is inside.
    since: i64,
    busy: i64,
}

impl Times {
    fn created(now: i64) -> Times {
        Times { created: now, first: None, last: now, visits: 0, inside: 0, since: now, busy: 0 }
    }

    fn enter(&mut self, now: i64) {
        self.first.get_or_insert(now);
        if self.inside == 0 {
            self.since = now;
            self.visits += 1;
        }
        self.inside += 1;
    }

    fn leave(&mut self, now: i64) {
        self.inside = self.inside.saturating_sub(1);
        if self.inside == 0 {
            self.last = now;
            self.busy = self.busy.saturating_add(now - self.since);
        }
    }

    /// Start and duration of a span that closes at `now`.
    fn window(&self, now: i64) -> (i64, i64) {
        match self.first {
            None => (self.created, now - self.created),
            Some(first) if self.inside > 0 => (first, now - first),
            Some(first) => (first, self.last - first),
        }
    }

    /// The time spent inside, where it is another than the whole.
    fn busy_ns(&self) -> Option<i64> {
        (self.visits > 1).then_some(self.busy)
    }
}

type Name = Bounded<{ NAME_BYTES + CUT_MARGIN }>;

/// Takes a span's fields down as attributes.
struct Fields<'a>(&'a mut ForeignAttributes);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.pair(field.name(), format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.pair(field.name(), format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.pair(field.name(), format_args!("{value}"));
    }
}

/// The field that holds an event's text.
const MESSAGE: &str = "message";

/// An event's text: its message, then its fields.
struct Body<'a>(&'a Event<'a>);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = BodyVisitor { f, only_message: true, is_first: true, result: Ok(()) };
        self.0.record(&mut body);
        body.only_message = false;
        self.0.record(&mut body);
        body.result
    }
}

struct BodyVisitor<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    only_message: bool,
    is_first: bool,
    result: fmt::Result,
}

impl BodyVisitor<'_, '_> {
    fn field(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let is_message = field.name() == MESSAGE;
        if self.result.is_err() || is_message != self.only_message {
            return;
        }
        let space = if self.is_first { "" } else { " " };
        self.is_first = false;
        self.result = match is_message {
            true => write!(self.f, "{space}{value}"),
            false => write!(self.f, "{space}{}={value}", field.name()),
        };
    }
}

impl Visit for BodyVisitor<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => self.field(field, format_args!("{value}")),
            _ => self.field(field, format_args!("{value:?}")),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.field(field, format_args!("{value}"));
    }
}
