//! Arrows from the submit of a task to its dispatches.
//!
//! A viewer drops an arrow whose source lies after its target, and a submit may end after the dispatch began: the
//! arrow then starts where the dispatch does (LESSONS 33).

use super::{Event, What};
use crate::event;
use crate::writer::Json;
use rustc_hash::FxHashMap;
use simpler_trace_model::{Family, Span, Trace};
use std::borrow::Cow;
use std::io::{self, Write};

/// A task of a run: process life, run and slot.
type Task<'a> = (u32, Cow<'a, str>, Cow<'a, str>);

/// Writes a pair of flow events for each dispatch whose submit is in the log. The events are in time order.
pub(super) fn write<W: Write>(json: &mut Json<W>, trace: &Trace, events: &[&Event<'_>]) -> io::Result<()> {
    let of_leaf = |leaf: &'static str| {
        events.iter().copied().filter_map(move |event| {
            let What::Host(span) = event.what else { return None };
            let name = trace.name(span);
            let meant = name.family == Family::Scheduler && name.leaf() == leaf;
            Some((event, span, if meant { task(trace, span) } else { None }?))
        })
    };
    let mut submits: FxHashMap<Task<'_>, Vec<&Event<'_>>> = FxHashMap::default();
    for (event, _, task) in of_leaf("submit") {
        submits.entry(task).or_default().push(event);
    }
    let mut id = 0_u64;
    for (dispatch, span, task) in of_leaf("dispatch") {
        let Some(submits) = submits.get(&task) else { continue };
        let before = submits.partition_point(|submit| submit.start <= dispatch.start);
        let Some(submit) = before.checked_sub(1).map(|latest| submits[latest]) else { continue };
        id += 1;
        let key = dispatch_key(trace, span, &task);
        let mut end = |ph, event: &Event<'_>, ts| {
            json.object(|json| {
                json.key("ph")?;
                json.text(ph)?;
                json.key("name")?;
                json.word("task dispatch")?;
                json.key("cat")?;
                json.word("host.scheduler")?;
                json.key("id")?;
                json.integer(id)?;
                if ph == "f" {
                    // It ends at the span around it, not at the next one.
                    json.key("bp")?;
                    json.word("e")?;
                }
                json.key("ts")?;
                json.us(ts)?;
                json.key("pid")?;
                json.integer(event.pid)?;
                json.key("tid")?;
                json.integer(event.tid)?;
                json.key("args")?;
                json.object(|json| {
                    json.key("dispatch_key")?;
                    json.text(&key)
                })
            })
        };
        end("s", submit, submit.end.min(dispatch.start))?;
        end("f", dispatch, dispatch.start)?;
    }
    Ok(())
}

fn task<'a>(trace: &'a Trace, span: &Span) -> Option<Task<'a>> {
    let attributes = trace.attributes(span);
    let slot = attributes.get("task_slot").or_else(|| attributes.get("slot"))?;
    Some((trace.life_index(span), attributes.get("run_id")?, slot))
}

fn dispatch_key(trace: &Trace, span: &Span, (_, run, slot): &Task<'_>) -> String {
    let attributes = trace.attributes(span);
    let or = |key, missing: &'static str| attributes.get(key).unwrap_or(Cow::Borrowed(missing));
    format!(
        "dispatch:{}:{run}:{slot}:{}:{}:{}",
        event::pid(trace, span),
        or("group_index", "-1"),
        or("worker_id", "-1"),
        or("dispatch_id", "0")
    )
}
