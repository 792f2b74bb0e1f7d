//! Showing a log that grows: when to look, when to show, and when to end.
//!
//! A signal handler notes that SIGINT or SIGTERM has come, nothing else; it is looked for between two looks at the
//! log. The second signal has its default effect, so nobody is caught in a program that hangs.

use crate::Console;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use simpler_trace_export::text;
use simpler_trace_ingest::{Follower, Reading};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// No more than one part in so many of the time goes into showing: what is computed anew each time takes longer as the
/// log grows, and a processor that watches is missing elsewhere.
const REFRESH_SHARE: u32 = 10;

/// Between two views on a small log: as often as one can read them.
const REFRESH_PAUSE_MIN: Duration = Duration::from_millis(500);

/// How many of the latest notices stay on a terminal whose screen is cleared.
const NOTICES_KEPT: usize = 5;

/// Goes home and clears the screen.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// How views are told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Each has many lines.
    Blocks,
    /// Each is a line by itself.
    Lines,
}

/// Which view is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// More may come.
    Meanwhile,
    /// The log has ended.
    Last,
}

/// A view of a reading, and the part of it that was asked for; or why there is none, which may yet change.
type Shown = io::Result<Result<Reading, String>>;

/// Whether it was asked to end.
// FORK: nothing here forks.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    // ORDERING: Relaxed: a flag by itself; nothing is read on the strength of it.
    ASKED.store(true, Ordering::Relaxed);
}

/// As long as there is one, signals are noted; then they do what they did before.
struct Listening {
    before: Vec<(Signal, SigAction)>,
}

impl Listening {
    fn begin() -> io::Result<Listening> {
        // ORDERING: Relaxed as in `note`.
        ASKED.store(false, Ordering::Relaxed);
        let handler = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESETHAND, SigSet::empty());
        let mut listening = Listening { before: Vec::new() };
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            // SAFETY: the handler is one atomic store.
            let before = unsafe { sigaction(signal, &handler) }?;
            listening.before.push((signal, before));
        }
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for (signal, before) in &self.before {
            // SAFETY: this is what the process had for the signal.
            let _ = unsafe { sigaction(*signal, before) };
        }
    }
}

/// Follows a log and shows it whenever the view has changed, until it ends or a signal comes; or until nobody reads
/// standard output any more. Returns what was read, as far as it was asked for.
///
/// `show` gives a view of a reading that holds a span, and what is to be said on stderr beside it.
pub(crate) fn follow(
    mut follower: Follower,
    form: Form,
    console: &mut Console<'_>,
    show: impl Fn(&mut Vec<u8>, Reading, &mut Vec<String>, When) -> Shown,
) -> anyhow::Result<Result<Reading, String>> {
    let _listening = Listening::begin()?;
    let mut screen = Screen::new(form, console);
    let mut due = Instant::now();
    let mut news = false;
    // ORDERING: Relaxed as in `note`.
    while !ASKED.load(Ordering::Relaxed) && !follower.is_ended() && !screen.console.out.is_reader_gone() {
        news |= follower.poll(&mut |notice| screen.notice(format!("note: {notice}"))) > 0;
        if news && Instant::now() >= due {
            let began = Instant::now();
            // Why there is no view yet is said there.
            let _ = screen.show(follower.snapshot(), When::Meanwhile, &show)?;
            if screen.unread {
                break;
            }
            due = began + REFRESH_PAUSE_MIN.max(began.elapsed() * REFRESH_SHARE);
            news = false;
        }
        follower.wait();
    }
    follower.poll(&mut |notice| screen.notice(format!("note: {notice}")));
    Ok(screen.show(follower.finish(), When::Last, &show)?)
}

/// What somebody sees.
struct Screen<'c, 'a> {
    console: &'c mut Console<'a>,
    form: Form,
    /// Whether views replace each other.
    redrawn: bool,
    view: Vec<u8>,
    /// The last view, and what was said beside it.
    shown: Option<Vec<u8>>,
    said: Vec<String>,
    notices: Vec<String>,
    /// Whether nobody reads any more.
    unread: bool,
}

impl<'c, 'a> Screen<'c, 'a> {
    fn new(form: Form, console: &'c mut Console<'a>) -> Screen<'c, 'a> {
        let redrawn = form == Form::Blocks && console.out.is_terminal();
        Screen {
            console,
            form,
            redrawn,
            view: Vec::new(),
            shown: None,
            said: Vec::new(),
            notices: Vec::new(),
            unread: false,
        }
    }

    fn notice(&mut self, notice: String) {
        self.console.err.say(&notice);
        if self.notices.len() == NOTICES_KEPT {
            self.notices.remove(0);
        }
        self.notices.push(notice);
    }

    /// Shows a reading, unless nothing has changed.
    fn show(
        &mut self,
        reading: Reading,
        when: When,
        show: impl Fn(&mut Vec<u8>, Reading, &mut Vec<String>, When) -> Shown,
    ) -> Shown {
        if reading.trace.spans().is_empty() {
            return Ok(Ok(reading));
        }
        self.view.clear();
        let mut remarks = Vec::new();
        let shown = show(&mut self.view, reading, &mut remarks, when)?;
        if let Err(sentence) = &shown
            && self.redrawn
        {
            // Where it is not drawn over, it is said once, in the end.
            remarks.push(sentence.clone());
        }
        if self.shown.as_ref() == Some(&self.view) && self.said == remarks {
            return Ok(shown);
        }
        match self.print(&remarks) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.unread = true,
            printed => {
                printed?;
                self.said = remarks;
                self.shown = Some(std::mem::take(&mut self.view));
            }
        }
        Ok(shown)
    }

    fn print(&mut self, remarks: &[String]) -> io::Result<()> {
        let Console { out, err, .. } = &mut *self.console;
        if self.redrawn {
            out.write_all(CLEAR)?;
            out.flush()?;
            self.notices.iter().chain(remarks).for_each(|line| err.say(line));
        } else {
            remarks.iter().filter(|remark| !self.said.contains(remark)).for_each(|line| err.say(line));
        }
        if (self.shown.as_ref() == Some(&self.view) || self.view.is_empty()) && !self.redrawn {
            return Ok(());
        }
        let mut block = Vec::with_capacity(self.view.len() + 32);
        if self.form == Form::Blocks {
            if self.shown.is_some() && !self.redrawn {
                block.push(b'\n');
            }
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            text::moment(&mut block, i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX))?;
        }
        block.extend_from_slice(&self.view);
        out.write_all(&block)?;
        out.flush()
    }
}
