//! The spans of a log, one Python object each.
//!
//! Most of what a span says is said by many: callable, depth and name come again with every run. So an object holds its
//! own numbers and shares the rest, the Python strings included, with those before it; a getter makes nothing.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use simpler_record_format::{
    ClockAnchor as RawAnchor, Input, PlainSpan, RawSpan, RecordEnd, SpanParse, parse_hex, parse_plain,
    parse_span, parse_span_of_any_version, percent_decode,
};
use simpler_trace_ingest::{Found, Reason, Sink, scan_lines};
use simpler_trace_model::{Anchor, Attributes, Family, family};

use crate::lines::Lines;

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Span>()?;
    module.add_class::<SpanIterator>()?;
    module.add_class::<ClockAnchor>()?;
    module.add_function(wrap_pyfunction!(parse_spans, module)?)?;
    module.add_function(wrap_pyfunction!(parse_clock_anchors, module)?)?;
    module.add_function(wrap_pyfunction!(parse_drop_summaries, module)?)?;
    module.add_function(wrap_pyfunction!(count_record_heads, module)?)?;
    module.add_function(wrap_pyfunction!(invocation_spans, module)?)?;
    module.add_function(wrap_pyfunction!(span_family, module)?)?;
    module.add_function(wrap_pyfunction!(node_span_leaf, module)?)?;
    module.add_function(wrap_pyfunction!(external_producer, module)?)
}

/// What spans of one callable, depth and name have in common.
struct Kind {
    version: u64,
    hid: u64,
    depth: u32,
    /// As in the record.
    encoded_name: Box<[u8]>,
    family: Family,
    /// `hid` in hexadecimal, and the decoded name.
    hid_text: Py<PyString>,
    name: Py<PyString>,
}

impl Kind {
    fn new(py: Python<'_>, version: u64, hid: u64, depth: u32, encoded_name: &[u8]) -> Kind {
        let decoded: Vec<u8> = percent_decode(encoded_name).collect();
        let name = String::from_utf8_lossy(&decoded);
        Kind {
            version,
            hid,
            depth,
            encoded_name: encoded_name.into(),
            family: family(&name),
            hid_text: PyString::new(py, &format!("{hid:x}")).unbind(),
            name: PyString::new(py, &name).unbind(),
        }
    }
}

/// One complete [STRACE] record.
///
/// Times are ns: of CLOCK_MONOTONIC, or, of a span of the device, from an origin of its invocation's own. A span does
/// not change; it may be used from any thread.
#[pyclass(frozen, module = "simpler_setup.tools.strace_timing")]
pub(crate) struct Span {
    kind: Arc<Kind>,
    #[pyo3(get)]
    pid: u64,
    #[pyo3(get)]
    tid: u64,
    #[pyo3(get)]
    inv: u64,
    #[pyo3(get)]
    ts: i64,
    #[pyo3(get)]
    dur: i64,
    /// When the record was made, by its envelope: CLOCK_MONOTONIC, ns; None if it stood without one.
    #[pyo3(get)]
    made_ns: Option<i64>,
    /// As in the record, still encoded.
    attrs: Py<PyString>,
}

/// All that tells spans apart.
type Fields<'a> = (u64, u64, u64, u64, u64, u32, &'a [u8], i64, i64, &'a str, Option<i64>);

impl Span {
    pub(crate) fn pid(&self) -> u64 {
        self.pid
    }

    pub(crate) fn inv(&self) -> u64 {
        self.inv
    }

    pub(crate) fn depth(&self) -> u32 {
        self.kind.depth
    }

    pub(crate) fn ts(&self) -> i64 {
        self.ts
    }

    pub(crate) fn made_ns(&self) -> Option<i64> {
        self.made_ns
    }

    pub(crate) fn name(&self) -> &Py<PyString> {
        &self.kind.name
    }

    pub(crate) fn hid_text(&self) -> &Py<PyString> {
        &self.kind.hid_text
    }

    /// The attributes as in the record. Ours have no lone surrogates; a text made elsewhere that has is as good as none.
    fn attributes<'a>(&'a self, py: Python<'a>) -> &'a str {
        self.attrs.to_str(py).unwrap_or_default()
    }

    /// The record that the span is.
    pub(crate) fn record<'a>(&'a self, py: Python<'a>) -> RawSpan<'a> {
        RawSpan {
            pid: self.pid,
            tid: self.tid,
            inv: self.inv,
            hid: self.kind.hid,
            depth: self.kind.depth,
            name: &self.kind.encoded_name,
            ts: self.ts,
            dur: self.dur,
            attrs: self.attributes(py).as_bytes(),
            end: RecordEnd::Line,
        }
    }

    /// A span that no log holds, with its name not encoded.
    #[expect(clippy::too_many_arguments, reason = "the fields of a record")]
    pub(crate) fn made(
        py: Python<'_>,
        [pid, tid, inv, hid]: [u64; 4],
        depth: u32,
        name: &str,
        ts: i64,
        dur: i64,
        attrs: &str,
        version: u64,
        made_ns: Option<i64>,
    ) -> Span {
        let encoded: Vec<u8> = name.bytes().flat_map(encode_percent).collect();
        let kind = Arc::new(Kind::new(py, version, hid, depth, &encoded));
        Span { kind, pid, tid, inv, ts, dur, made_ns, attrs: PyString::new(py, attrs).unbind() }
    }

    /// The Python object that the span is. It holds numbers and strings alone, so it is in no cycle of references, and the
    /// collector need not look for one: with millions of spans that is most of what they cost.
    fn into_object(py: Python<'_>, span: Span) -> PyResult<Bound<'_, Span>> {
        let span = Bound::new(py, span)?;
        // SAFETY: this is an object of a type that the collector knows, as all classes of pyo3 are, and the GIL is held. It
        // may be untracked at any time, as CPython does with tuples; who frees it asks whether it is tracked.
        unsafe { ffi::PyObject_GC_UnTrack(span.as_ptr().cast()) };
        Ok(span)
    }

    fn fields<'a>(&'a self, py: Python<'a>) -> Fields<'a> {
        let Kind { version, hid, depth, encoded_name, .. } = &*self.kind;
        let Span { pid, tid, inv, ts, dur, made_ns, .. } = *self;
        (*version, pid, tid, inv, *hid, *depth, encoded_name, ts, dur, self.attributes(py), made_ns)
    }
}

/// The only byte of a name that would be taken for something else.
fn encode_percent(byte: u8) -> impl Iterator<Item = u8> {
    let encoded: &[u8] = if byte == b'%' { b"%25" } else { &[] };
    let own = encoded.is_empty().then_some(byte);
    encoded.iter().copied().chain(own)
}

#[pymethods]
impl Span {
    #[new]
    #[pyo3(signature = (*, pid, tid, inv, hid, depth, name, ts, dur, attrs = "", v = 1, made_ns = None))]
    #[expect(clippy::too_many_arguments, reason = "the fields of a record")]
    fn new(
        py: Python<'_>,
        pid: u64,
        tid: u64,
        inv: u64,
        hid: &str,
        depth: u32,
        name: &str,
        ts: i64,
        dur: i64,
        attrs: &str,
        v: u64,
        made_ns: Option<i64>,
    ) -> PyResult<Span> {
        let Some(hid) = parse_hex(hid.as_bytes()) else {
            return Err(PyValueError::new_err(format!(
                "a hid has at most 16 hexadecimal digits, as in a log, not {hid:?}"
            )));
        };
        if ts < 0 || dur < 0 {
            return Err(PyValueError::new_err("a span's ts and dur are not negative"));
        }
        Ok(Span::made(py, [pid, tid, inv, hid], depth, name, ts, dur, attrs, v, made_ns))
    }

    /// The version of the record's grammar; other ones than 1 are read as if they were that.
    #[getter]
    fn v(&self) -> u64 {
        self.kind.version
    }

    /// The callable's identity in hexadecimal, in lower case.
    #[getter]
    fn hid(&self, py: Python<'_>) -> Py<PyString> {
        self.kind.hid_text.clone_ref(py)
    }

    /// 0 for the root of an invocation, one more for each level below.
    #[getter(depth)]
    fn get_depth(&self) -> u32 {
        self.kind.depth
    }

    /// The dotted name, decoded.
    #[getter(name)]
    fn get_name(&self, py: Python<'_>) -> Py<PyString> {
        self.kind.name.clone_ref(py)
    }

    /// The attributes as they stand in the record, without blanks around them; a `~` at the end says that they were
    /// cut.
    #[getter]
    fn attrs(&self, py: Python<'_>) -> Py<PyString> {
        self.attrs.clone_ref(py)
    }

    /// The attributes by key: integers where they are, else text, decoded. What is no `key=value` is left out, and so is
    /// a value that was cut.
    #[getter(attributes)]
    fn get_attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parsed = PyDict::new(py);
        for (key, value) in Attributes::new(self.attributes(py).as_bytes()).pairs() {
            let decoded: Vec<u8> = percent_decode(value).collect();
            let text = String::from_utf8_lossy(&decoded);
            let value = match integer(value) {
                Some(integer) => integer.into_py_any(py)?,
                None => text.into_py_any(py)?,
            };
            parsed.set_item(String::from_utf8_lossy(key), value)?;
        }
        Ok(parsed)
    }

    /// Whether it is on the device's clock: attribute `clk` is `dev`.
    #[getter]
    fn is_device(&self, py: Python<'_>) -> bool {
        let attributes = Attributes::new(self.attributes(py).as_bytes());
        attributes.pairs().filter(|(key, _)| *key == b"clk").last().is_some_and(|(_, value)| value == b"dev")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Span>().is_ok_and(|other| self.fields(py) == other.get().fields(py))
    }

    fn __hash__(&self, py: Python<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.fields(py).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Kind { version, hid, depth, name, .. } = &*self.kind;
        let Span { pid, tid, inv, ts, dur, .. } = self;
        let (name, attrs) = (name.bind(py).repr()?, self.attrs.bind(py).repr()?);
        Ok(format!(
            "Span(v={version}, pid={pid}, tid={tid}, inv={inv}, hid='{hid:x}', depth={depth}, name={name}, ts={ts}, \
             dur={dur}, attrs={attrs})"
        ))
    }

    /// Spans go to other processes by their fields.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let fields = PyDict::new(py);
        fields.set_item("v", self.kind.version)?;
        fields.set_item("pid", self.pid)?;
        fields.set_item("tid", self.tid)?;
        fields.set_item("inv", self.inv)?;
        fields.set_item("hid", &self.kind.hid_text)?;
        fields.set_item("depth", self.kind.depth)?;
        fields.set_item("name", &self.kind.name)?;
        fields.set_item("ts", self.ts)?;
        fields.set_item("dur", self.dur)?;
        fields.set_item("attrs", &self.attrs)?;
        fields.set_item("made_ns", self.made_ns)?;
        let make =
            py.import("functools")?.getattr("partial")?.call((py.get_type::<Span>(),), Some(&fields))?;
        Ok((make, PyTuple::empty(py)))
    }
}

/// The value of `-?[0-9]+`, of any length.
fn integer(text: &[u8]) -> Option<Integer> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    Some(text.parse().map_or_else(|_| Integer::Long(text.to_owned()), Integer::Short))
}

/// A Python integer has any number of digits.
enum Integer {
    Short(i64),
    Long(String),
}

impl Integer {
    fn into_py_any(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Integer::Short(value) => value.into_py_any(py),
            // Python refuses to read thousands of digits; then it is a text.
            Integer::Long(text) => {
                let int = py.get_type::<pyo3::types::PyInt>();
                int.call1((text.as_str(),)).map_or_else(|_| text.into_py_any(py), |value| Ok(value.unbind()))
            }
        }
    }
}

/// How many texts of each sort are kept for the spans to come. A log has some hundreds of kinds; a hostile one has one a
/// record, which costs time and no memory.
const CACHED: usize = 1024;

/// A text of a record, and what was made of it.
struct Cached<T> {
    text: Box<[u8]>,
    made: T,
}

/// What was made of texts, each in the one place where it can be.
struct Cache<T>(Vec<Option<Cached<T>>>);

impl<T> Cache<T> {
    fn new() -> Cache<T> {
        Cache(std::iter::repeat_with(|| None).take(CACHED).collect())
    }

    /// What was made of `text`, or is made now.
    #[inline]
    fn get(&mut self, text: &[u8], make: impl FnOnce() -> Option<T>) -> Option<&T> {
        let place = &mut self.0[place(text)];
        if place.as_ref().is_none_or(|cached| *cached.text != *text) {
            *place = Some(Cached { text: text.into(), made: make()? });
        }
        place.as_ref().map(|cached| &cached.made)
    }
}

/// Where a text is: by its length and its ends, where texts differ.
#[inline]
fn place(text: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |eight| u64::from_le_bytes(*eight));
    let middle = text.get(text.len() / 2..).and_then(<[u8]>::first_chunk);
    let ends = word(text.first_chunk()) ^ word(middle).rotate_left(23);
    let mixed = (ends.wrapping_mul(ODD) ^ word(text.last_chunk())).wrapping_mul(ODD) ^ text.len() as u64;
    (mixed.wrapping_mul(ODD) >> 32) as usize % CACHED
}

/// Makes spans of records.
struct SpanMaker {
    /// By `hid=<hex> depth=<n> name=<dotted>`.
    kinds: Cache<Arc<Kind>>,
    attrs: Cache<Py<PyString>>,
}

impl SpanMaker {
    fn attrs(&mut self, py: Python<'_>, raw: &[u8]) -> Py<PyString> {
        let make = || Some(PyString::new(py, &String::from_utf8_lossy(raw)).unbind());
        match self.attrs.get(raw, make) {
            Some(text) => text.clone_ref(py),
            None => PyString::new(py, "").unbind(),
        }
    }

    fn of_record(
        &mut self,
        py: Python<'_>,
        version: u64,
        record: &RawSpan<'_>,
        made_ns: Option<i64>,
    ) -> Span {
        let RawSpan { pid, tid, inv, hid, depth, name, ts, dur, attrs, .. } = *record;
        let kind = Arc::new(Kind::new(py, version, hid, depth, name));
        Span { kind, pid, tid, inv, ts, dur, made_ns, attrs: self.attrs(py, attrs) }
    }

    /// The span of a record in the encoder's form; `None` if it is none after all.
    #[inline]
    fn of_plain(&mut self, py: Python<'_>, plain: &PlainSpan<'_>, body: &[u8]) -> Option<Span> {
        let make = || match parse_span(body, Input::Whole) {
            SpanParse::Span(RawSpan { hid, depth, name, .. }, _) => {
                Some(Arc::new(Kind::new(py, 1, hid, depth, name)))
            }
            _ => None,
        };
        let kind = Arc::clone(self.kinds.get(plain.what, make)?);
        let PlainSpan { pid, tid, inv, ts, dur, mono_ns, attrs, .. } = *plain;
        Some(Span { kind, pid, tid, inv, ts, dur, made_ns: Some(mono_ns), attrs: self.attrs(py, attrs) })
    }
}

/// Takes the spans of a piece, and nothing else.
struct Finding<'a, 'py> {
    py: Python<'py>,
    maker: &'a mut SpanMaker,
    piece: &'a [u8],
    found: &'a mut VecDeque<Span>,
}

impl Sink for Finding<'_, '_> {
    fn found(&mut self, offset: u64, found: Found<'_>) {
        let span = match found {
            Found::Span(record, made_ns) => self.maker.of_record(self.py, 1, &record, made_ns),
            Found::Fault(Reason::UnknownVersion(_)) => {
                let Some((version, record)) = parse_span_of_any_version(&self.piece[offset as usize..])
                else {
                    return;
                };
                self.maker.of_record(self.py, version, &record, None)
            }
            _ => return,
        };
        self.found.push_back(span);
    }

    fn line(&mut self, _offset: u64, bytes: &[u8]) -> Option<usize> {
        let (plain, len) = parse_plain(bytes)?;
        let span = self.maker.of_plain(self.py, &plain, &bytes[plain.envelope_len..len])?;
        self.found.push_back(span);
        Some(len)
    }
}

/// The spans of lines, as they come.
#[pyclass(module = "simpler_setup.tools.strace_timing")]
struct SpanIterator {
    lines: Lines,
    maker: SpanMaker,
    found: VecDeque<Span>,
}

#[pymethods]
impl SpanIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, Span>>> {
        let SpanIterator { lines, maker, found } = self;
        loop {
            if let Some(span) = found.pop_front() {
                return Span::into_object(py, span).map(Some);
            }
            let Some(piece) = lines.next(py)? else { return Ok(None) };
            scan_lines(piece, 0, &mut Finding { py, maker, piece, found });
        }
    }
}

/// The complete records of lines, in their order, as they come.
#[pyfunction]
fn parse_spans(lines: &Bound<'_, PyAny>) -> PyResult<SpanIterator> {
    let maker = SpanMaker { kinds: Cache::new(), attrs: Cache::new() };
    Ok(SpanIterator { lines: Lines::new(lines)?, maker, found: VecDeque::new() })
}

/// A reading of both clocks by one process.
#[pyclass(frozen, eq, hash, get_all, module = "simpler_setup.tools.strace_timing")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ClockAnchor {
    /// The process.
    pub(crate) pid: u64,
    /// CLOCK_MONOTONIC, ns.
    pub(crate) mono_ns: i64,
    /// Unix time, ns.
    pub(crate) wall_ns: i64,
}

#[pymethods]
impl ClockAnchor {
    #[new]
    #[pyo3(signature = (*, pid, mono_ns, wall_ns))]
    fn new(pid: u64, mono_ns: i64, wall_ns: i64) -> ClockAnchor {
        ClockAnchor { pid, mono_ns, wall_ns }
    }

    /// The Unix time in ns of the monotonic `ts`; None if that was before the anchor was taken.
    fn to_wall_ns(&self, ts: i64) -> Option<i64> {
        Anchor { mono_ns: self.mono_ns, wall_ns: self.wall_ns }.wall_of(ts)
    }

    fn __repr__(&self) -> String {
        let ClockAnchor { pid, mono_ns, wall_ns } = self;
        format!("ClockAnchor(pid={pid}, mono_ns={mono_ns}, wall_ns={wall_ns})")
    }
}

impl From<&ClockAnchor> for RawAnchor {
    fn from(anchor: &ClockAnchor) -> RawAnchor {
        RawAnchor { pid: anchor.pid, mono_ns: anchor.mono_ns, wall_ns: anchor.wall_ns }
    }
}

/// Looks through all lines.
fn look_through(lines: &Bound<'_, PyAny>, mut found: impl FnMut(Found<'_>)) -> PyResult<()> {
    let py = lines.py();
    let mut lines = Lines::new(lines)?;
    while let Some(piece) = lines.next(py)? {
        scan_lines(piece, 0, &mut |_, what: Found<'_>| found(what));
    }
    Ok(())
}

/// The clock anchors of lines, in their order.
#[pyfunction]
fn parse_clock_anchors(lines: &Bound<'_, PyAny>) -> PyResult<Vec<ClockAnchor>> {
    let mut anchors = Vec::new();
    look_through(lines, |found| {
        if let Found::Anchor(RawAnchor { pid, mono_ns, wall_ns }) = found {
            anchors.push(ClockAnchor { pid, mono_ns, wall_ns });
        }
    })?;
    Ok(anchors)
}

/// The keys of a drop report.
const REASONS: [&str; 4] = ["queue_full", "claim_exhausted", "output_failed", "not_admitted"];

/// By pid the drop report with the largest total: reports are totals over a process's life.
#[pyfunction]
fn parse_drop_summaries<'py>(lines: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = lines.py();
    let mut reports = std::collections::BTreeMap::new();
    look_through(lines, |found| {
        if let Found::Drops(report) = found {
            let held = reports.entry(report.pid).or_insert(report);
            if held.total <= report.total {
                *held = report;
            }
        }
    })?;
    let summaries = PyDict::new(py);
    for (pid, report) in reports {
        let summary = PyDict::new(py);
        summary.set_item("total", report.total)?;
        for (reason, count) in REASONS.into_iter().zip(report.by_reason) {
            summary.set_item(reason, count)?;
        }
        summaries.set_item(pid, summary)?;
    }
    Ok(summaries)
}

/// How many [STRACE] records begin in lines, complete or not, of any version.
#[pyfunction]
fn count_record_heads(lines: &Bound<'_, PyAny>) -> PyResult<u64> {
    let mut heads = 0;
    look_through(lines, |found| {
        let head = matches!(
            found,
            Found::Span(..) | Found::Fault(Reason::Torn | Reason::Malformed(_) | Reason::UnknownVersion(_))
        );
        heads += u64::from(head);
    })?;
    Ok(heads)
}

/// All spans of an iterable.
///
/// # Errors
/// Whatever it raises; `TypeError` for anything but a span.
pub(crate) fn spans_of<'py>(spans: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Span>>> {
    let span = |span: PyResult<Bound<'py, PyAny>>| {
        span?.cast_into::<Span>().map_err(|other| {
            let what =
                other.into_inner().get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("spans are those of parse_spans, not {what}"))
        })
    };
    spans.try_iter()?.map(span).collect()
}

/// The spans that belong to an invocation: those of schedulers and of foreign producers do not; those of a family that
/// nobody knows are kept.
#[pyfunction]
fn invocation_spans<'py>(spans: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let all = spans_of(spans)?;
    let grouped = all.into_iter().filter(|span| is_grouped(span.get()));
    PyList::new(spans.py(), grouped.collect::<Vec<_>>())
}

pub(crate) fn is_grouped(span: &Span) -> bool {
    !matches!(span.kind.family, Family::Scheduler | Family::External)
}

/// Whose span has this name.
#[pyfunction]
fn span_family(name: &str) -> &'static str {
    match family(name) {
        Family::Chip => "chip",
        Family::Core => "core",
        Family::Scheduler => "node",
        Family::External => "external",
        Family::Unknown => "unknown",
    }
}

/// The last word of a scheduler span's name; None for any other span.
#[pyfunction]
fn node_span_leaf(name: &str) -> Option<&str> {
    (family(name) == Family::Scheduler).then(|| name.rsplit('.').next()).flatten()
}

/// The producer that an external span's name tells; None if it tells none.
#[pyfunction]
fn external_producer(name: &str) -> Option<&str> {
    simpler_trace_model::producer(name)
}
