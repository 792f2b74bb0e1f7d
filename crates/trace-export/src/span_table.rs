//! The spans of a log as a table of Arrow record batches: one row a span, in log order.
//!
//! This is what data frames and SQL engines take. What many spans have in common, the names above all, stands once in a
//! dictionary that all batches share; a batch is made when it is asked for, so a table of millions of rows is never in
//! memory twice. What is not known is null and never 0.

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, RecordBatch, RecordBatchReader, StringArray,
    TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use rustc_hash::FxHashMap;
use simpler_trace_model::{Span, Trace};
use std::ops::Range;
use std::sync::Arc;

/// Rows of a batch: enough that what each costs is nothing, few enough that one is some megabytes.
pub const BATCH_ROWS: usize = 1 << 16;

/// No invocation.
const NONE: u32 = u32::MAX;

/// The zone of wall times.
const UTC: &str = "UTC";

/// A log's spans, ready to be given as batches any number of times.
pub struct SpanTable {
    trace: Arc<Trace>,
    schema: SchemaRef,
    /// By span, the invocation that it belongs to.
    invocations: Vec<u32>,
    /// By invocation, what its callable is called: a place in `labels`.
    label_of: Vec<i32>,
    labels: Arc<StringArray>,
    names: Arc<StringArray>,
    hids: Arc<StringArray>,
    hid_of: FxHashMap<u64, i32>,
    hosts: Arc<StringArray>,
    /// By life, its host: a place in `hosts`.
    host_of: Vec<Option<i32>>,
}

impl SpanTable {
    /// The table of a trace, whose attributes must all have been kept
    /// ([`Keep::All`](simpler_trace_ingest::Keep::All)).
    pub fn new(trace: Arc<Trace>) -> SpanTable {
        let mut invocations = vec![NONE; trace.spans().len()];
        for (number, invocation) in (0..).zip(trace.invocations()) {
            trace.span_indices(invocation).iter().for_each(|&span| invocations[span as usize] = number);
        }
        let mut label_of = vec![0; trace.invocations().len()];
        let mut labels = Vec::new();
        for (at, (label, of)) in (0..).zip(trace.labels()) {
            of.into_iter().for_each(|invocation| label_of[invocation as usize] = at);
            labels.push(label);
        }
        let mut hids = Vec::new();
        let mut hid_of = FxHashMap::default();
        for span in trace.spans() {
            let hid = trace.hid(span);
            hid_of.entry(hid).or_insert_with(|| {
                hids.push(format!("{hid:x}"));
                hids.len() as i32 - 1
            });
        }
        let place = |id| trace.hosts().iter().position(|host| host.id == id).map(|at| at as i32);
        let host_of = trace.lives().iter().map(|life| life.host.and_then(place)).collect();
        let names = StringArray::from_iter_values(trace.names().iter().map(|name| &*name.text));
        let hosts = StringArray::from_iter_values(trace.hosts().iter().map(|host| &*host.name));
        SpanTable {
            schema: schema(),
            invocations,
            label_of,
            labels: Arc::new(StringArray::from(labels)),
            names: Arc::new(names),
            hids: Arc::new(StringArray::from(hids)),
            hid_of,
            hosts: Arc::new(hosts),
            host_of,
            trace,
        }
    }

    /// What the rows are of.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.trace.spans().len()
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// All batches, from the first on.
    pub fn batches(self: &Arc<SpanTable>) -> SpanBatches {
        SpanBatches { table: Arc::clone(self), next: 0 }
    }

    fn batch(&self, rows: Range<usize>) -> Result<RecordBatch, ArrowError> {
        let trace = &*self.trace;
        let spans = &trace.spans()[rows.clone()];
        let invocations = &self.invocations[rows.clone()];
        let known = |&number: &u32| (number != NONE).then_some(number);
        let (placed, wall) = self.times(spans, invocations);
        let mut error_ns = Int64Builder::with_capacity(spans.len());
        let mut host_ts = Int64Builder::with_capacity(spans.len());
        for moment in &placed {
            host_ts.append_option(moment.map(|moment| moment.0));
            error_ns.append_option(moment.map(|moment| moment.1));
        }
        let mut attrs = StringBuilder::with_capacity(spans.len(), 32 * spans.len());
        for span in spans {
            attrs.append_value(String::from_utf8_lossy(trace.attributes(span).raw()));
        }
        let number = |of: fn(&Trace, &Span) -> u64| {
            Arc::new(UInt64Array::from_iter_values(spans.iter().map(|span| of(trace, span)))) as ArrayRef
        };
        let labels = invocations.iter().map(|number| known(number).map(|at| self.label_of[at as usize]));
        let hosts = spans.iter().map(|span| self.host_of[trace.life_index(span) as usize]);
        let wall = TimestampNanosecondArray::from(wall).with_timezone(UTC);
        let columns: Vec<ArrayRef> = vec![
            words(hosts, &self.hosts)?,
            Arc::new(UInt32Array::from_iter_values(spans.iter().map(|span| trace.life_index(span)))),
            number(|trace, span| trace.life(span).pid),
            number(Trace::tid),
            number(Trace::inv),
            Arc::new(invocations.iter().map(known).collect::<UInt32Array>()),
            words(spans.iter().map(|span| self.hid_of.get(&trace.hid(span)).copied()), &self.hids)?,
            words(labels, &self.labels)?,
            Arc::new(UInt32Array::from_iter_values(spans.iter().map(|span| trace.depth(span)))),
            words(spans.iter().map(|span| Some(trace.name_id(span).index() as i32)), &self.names)?,
            Arc::new(spans.iter().map(|span| Some(trace.is_device(span))).collect::<BooleanArray>()),
            Arc::new(spans.iter().map(|span| Some(span.ts)).collect::<arrow_array::Int64Array>()),
            Arc::new(spans.iter().map(|span| Some(span.dur)).collect::<arrow_array::Int64Array>()),
            Arc::new(host_ts.finish()),
            Arc::new(error_ns.finish()),
            Arc::new(wall),
            Arc::new(attrs.finish()),
        ];
        RecordBatch::try_new(self.schema(), columns)
    }

    /// Of each span, its start on the host's axis with the error of that, and its start in Unix time; ns.
    #[expect(clippy::type_complexity, reason = "two columns")]
    fn times(&self, spans: &[Span], invocations: &[u32]) -> (Vec<Option<(i64, i64)>>, Vec<Option<i64>>) {
        let trace = &*self.trace;
        let mut placed: Vec<Option<(i64, i64)>> =
            spans.iter().map(|span| (!trace.is_device(span)).then_some((span.ts, 0))).collect();
        // Where an invocation's device spans lie is found once for all of them.
        let mut device: Vec<(u32, usize)> = (0..spans.len())
            .filter(|&row| trace.is_device(&spans[row]) && invocations[row] != NONE)
            .map(|row| (invocations[row], row))
            .collect();
        device.sort_unstable();
        for of_one in device.chunk_by(|a, b| a.0 == b.0) {
            let Some(alignment) = trace.alignment(&trace.invocations()[of_one[0].0 as usize]) else {
                continue;
            };
            for &(_, row) in of_one {
                let place = alignment.place(trace, &spans[row]);
                placed[row] = Some((place.start_ns, place.error_ns));
            }
        }
        let wall = |(span, moment): (&Span, &Option<(i64, i64)>)| {
            let (start, _) = (*moment)?;
            trace.life(span).anchor?.wall_of(start)
        };
        let walls = spans.iter().zip(&placed).map(wall).collect();
        (placed, walls)
    }
}

/// The batches of a table, one after the other.
pub struct SpanBatches {
    table: Arc<SpanTable>,
    /// The first row of the next one.
    next: usize,
}

impl Iterator for SpanBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.next..self.table.rows().min(self.next + BATCH_ROWS);
        self.next = rows.end;
        (!rows.is_empty()).then(|| self.table.batch(rows))
    }
}

impl RecordBatchReader for SpanBatches {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }
}

fn words(keys: impl Iterator<Item = Option<i32>>, values: &Arc<StringArray>) -> Result<ArrayRef, ArrowError> {
    let values = Arc::clone(values) as ArrayRef;
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys.collect::<Int32Array>(), values)?))
}

fn schema() -> SchemaRef {
    let word = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let fields = vec![
        Field::new("host", word(), true),
        Field::new("life", DataType::UInt32, false),
        Field::new("pid", DataType::UInt64, false),
        Field::new("tid", DataType::UInt64, false),
        Field::new("inv", DataType::UInt64, false),
        Field::new("invocation", DataType::UInt32, true),
        Field::new("hid", word(), false),
        Field::new("callable", word(), true),
        Field::new("depth", DataType::UInt32, false),
        Field::new("name", word(), false),
        Field::new("is_device", DataType::Boolean, false),
        Field::new("ts_ns", DataType::Int64, false),
        Field::new("dur_ns", DataType::Int64, false),
        Field::new("host_ts_ns", DataType::Int64, true),
        Field::new("error_ns", DataType::Int64, true),
        Field::new("wall_time", DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())), true),
        Field::new("attrs", DataType::Utf8, false),
    ];
    Arc::new(Schema::new(fields))
}
