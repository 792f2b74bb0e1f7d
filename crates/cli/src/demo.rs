//! `simpler demo`: a real decoder on simulated chips, explained by its own log.
//!
//! The order is that of any program of this kind: load and compile while there is one thread, start the worker
//! (which forks the chips), put the weights on each chip, run, close. What is printed afterwards comes from the
//! log alone, read as `simpler timing` reads it.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig, callables};
use simpler_kernel_compiler::{CallableObjects, Compiler};
use simpler_log_abi::Threshold;
use simpler_runtime::{CallConfig, CallableImage, GraphRuntime, RuntimeConfig};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use simpler_swimlane::Level;
use simpler_trace_export::{chrome, swimlane, text};
use simpler_trace_ingest::{Reading, Source, read};
use simpler_trace_model::{Callable as TimedCallable, HostPhases};
use simpler_worker::{CHIPS_MAX, Callable, LogSetup, SharedBuffer, SharedMemory, Worker};

use crate::log::complain;
use crate::timing::{read_chip_records, write_file};
use crate::{Console, Exit};

/// Marks a folder that a demo made and the next one may replace.
const MARKER: &str = ".simpler-demo";
/// What the chips are asked, in turn, when no prompt is given.
const PROMPTS: [&str; 4] = [
    "The capital of France is",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "The twelve months of the year are January, February, March,",
    "def gcd(a, b):\n    while b:\n        a, b = b,",
];
/// The file that `cargo xtask fetch-model` fetches.
const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Names another place for it.
const SMOLLM2_VARIABLE: &str = "SIMPLER_SMOLLM2_GGUF";
/// The folder of the chips' records in the demo's own.
const SWIMLANE: &str = "swimlane";
/// Bytes of a token's word in shared memory.
const WORD_BYTES: usize = 4;

/// Runs a decoder on simulated chips and explains its time from its own log
///
/// Each chip serves one request: one prefill, then a decode for every further token (the end-of-text token
/// does not stop it). Prints the generated text and the table of `simpler timing`; leaves the logs in DIR/log
/// and a Chrome trace in DIR/trace.json.
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// Chips, each in a process of its own
    #[arg(long, default_value_t = 2)]
    chips: usize,
    /// Tokens to generate for each request
    #[arg(long, default_value_t = 32)]
    tokens: u32,
    /// tiny (built in), smollm2 (see `cargo xtask fetch-model`), or a GGUF file: llama architecture, the SmolLM
    /// tokenizer, weights in Q4_1, Q8_0, F16 or F32
    #[arg(long, default_value = "tiny")]
    model: PathBuf,
    /// What every chip is to continue; without it each has a prompt of its own
    #[arg(long)]
    prompt: Option<String>,
    /// Put the prompt into the model's chat template
    #[arg(long)]
    chat: bool,
    /// The platform of each chip
    #[arg(long, value_enum, default_value = "a2a3sim")]
    platform: Platform,
    /// The graph runtime: tmr builds the graph on the device while it runs, hbg on the host before
    #[arg(long, value_enum, default_value = "tmr")]
    runtime: Runtime,
    /// Time tasks in all 16 slots: 0 the embedding, 1 to 14 the norm that opens as many layers, 15 the argmax
    #[arg(long)]
    task_slots: bool,
    /// Record every task, scheduler phase and submit of the chips, and draw them with the host's spans: DIR/swimlane
    /// and DIR/swimlane.json
    #[arg(long)]
    swimlane: bool,
    /// Where to write; a folder that an earlier demo made is replaced, any other must be empty
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    out: PathBuf,
    /// A folder whose C sources take the place of the built-in ones of the same name
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,
    /// Print the figures as one JSON object on the last line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Platform {
    A2a3sim,
    A5sim,
}

impl Platform {
    fn profile(self) -> Profile {
        match self {
            Self::A2a3sim => Profile::a2a3sim(),
            Self::A5sim => Profile::a5sim(),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Runtime {
    /// tensormap_and_ringbuffer.
    Tmr,
    /// host_build_graph.
    Hbg,
}

impl Runtime {
    fn graph_runtime(self) -> GraphRuntime {
        match self {
            Self::Tmr => GraphRuntime::TensorMapAndRingBuffer,
            Self::Hbg => GraphRuntime::HostBuildGraph,
        }
    }
}

impl Demo {
    pub(crate) fn run(&self, console: &mut Console<'_>) -> Result<Exit> {
        ensure!(self.tokens >= 1, "--tokens must be at least 1");
        ensure!((1..=CHIPS_MAX).contains(&self.chips), "--chips must be 1 to {CHIPS_MAX}");
        let model = self.load_model()?;
        let prompts = self.prompts(&model)?;
        let session = self.session(&model, &prompts)?;
        let compiled = self.compile()?;
        let log_dir = self.make_out()?.join("log");

        let sequences = self.generate(&model, &session, &prompts, &compiled, &log_dir)?;
        self.explain(&model, &sequences, &compiled, &log_dir, console)
    }

    fn load_model(&self) -> Result<Model> {
        let file = match self.model.to_str() {
            Some("tiny") => return Ok(Model::tiny()?),
            Some("smollm2") => smollm2()?,
            _ => self.model.clone(),
        };
        Model::from_gguf(&file).with_context(|| format!("cannot load the model {}", file.display()))
    }

    /// The token ids of each chip's prompt.
    fn prompts(&self, model: &Model) -> Result<Vec<Vec<u32>>> {
        let prompt = |chip: usize| {
            let text = self.prompt.as_deref().unwrap_or(PROMPTS[chip % PROMPTS.len()]);
            let ids = if self.chat {
                model.tokenizer.encode(&model.chat_prompt(text)?, true)?
            } else {
                model.tokenizer.encode(text, false)?
            };
            ensure!(!ids.is_empty(), "the prompt has no tokens: there is nothing to continue");
            Ok(ids)
        };
        (0..self.chips).map(prompt).collect()
    }

    fn session(&self, model: &Model, prompts: &[Vec<u32>]) -> Result<Session> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        // The last token generated is never read, so its position needs no room.
        let capacity = u32::try_from(longest).ok().and_then(|longest| longest.checked_add(self.tokens - 1));
        let context = model.config.context;
        let Some(capacity) = capacity.filter(|capacity| *capacity <= context) else {
            bail!(
                "{longest} prompt tokens and {} new ones do not fit the model's context of {context}",
                self.tokens
            );
        };
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        Ok(Session::new(
            model,
            SessionConfig { task_slots: self.task_slots, ..SessionConfig::for_cpus(capacity, cpus) },
        )?)
    }

    fn compile(&self) -> Result<Vec<CallableObjects>> {
        if let Some(folder) = &self.kernels {
            ensure!(folder.is_dir(), "--kernels {}: no such folder", folder.display());
        }
        let compiler = Compiler::new(cache_folder()?.join("objects"))?;
        let sources = callables(self.kernels.as_deref())?;
        sources.iter().map(|source| Ok(compiler.compile(source)?)).collect()
    }

    /// Makes the output folder, or makes it anew.
    fn make_out(&self) -> Result<&Path> {
        let out = self.out.as_path();
        let failed = || format!("cannot make {}", out.display());
        let empty = match fs::read_dir(out) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error).with_context(failed),
        };
        if !empty {
            let theirs =
                format!("{} is not empty and no demo made it; name another folder with --out", out.display());
            ensure!(out.join(MARKER).exists(), theirs);
            empty_out(out).with_context(|| format!("cannot replace what is in {}", out.display()))?;
        }
        fs::create_dir_all(out).with_context(failed)?;
        fs::write(out.join(MARKER), "Made by `simpler demo`, which may replace this folder.\n")
            .with_context(failed)?;
        Ok(out)
    }

    /// Serves one request on each chip; the sequences are the generated ids by chip.
    fn generate(
        &self,
        model: &Model,
        session: &Session,
        prompts: &[Vec<u32>],
        compiled: &[CallableObjects],
        log_dir: &Path,
    ) -> Result<Vec<Vec<u32>>> {
        let mut builder = Worker::builder(3);
        builder.chips(self.chips);
        let profile = self.platform.profile();
        let config =
            RuntimeConfig { graph_runtime: self.runtime.graph_runtime(), ..RuntimeConfig::default() };
        builder.chip(config, move |_| SimNpu::new(profile.clone(), SimOptions::default()));
        builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(log_dir.to_owned()) });
        let [prefill, decode] = compiled else {
            bail!("the decoder has {} callables, not two", compiled.len())
        };
        let prefill = builder.callable(CallableImage::load(prefill)?)?;
        let decode = builder.callable(CallableImage::load(decode)?)?;

        let mut weights = SharedBuffer::new(model.image.len())?;
        weights.as_mut_slice().copy_from_slice(&model.image);
        let table = session.rope_table();
        let mut rope = SharedBuffer::new(size_of_val(table.as_slice()))?;
        for (word, value) in rope.as_mut_slice().chunks_exact_mut(size_of::<f32>()).zip(&table) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
        let (weights, rope) = (builder.share(weights), builder.share(rope));
        let words = |_| Ok(builder.share(SharedBuffer::new(session.token_words() * WORD_BYTES)?));
        let words: Vec<SharedMemory> = (0..self.chips).map(words).collect::<Result<_>>()?;

        let mut worker = builder.start()?;
        let mut chips = Vec::new();
        for (chip, (words, prompt)) in words.into_iter().zip(prompts).enumerate() {
            for (position, id) in prompt.iter().enumerate() {
                words.write(position * WORD_BYTES, &id.to_ne_bytes())?;
            }
            let buffers = put_on_chip(&mut worker, chip, session, &weights, &rope)?;
            chips.push(Chip { buffers, words, prompt_tokens: prompt.len() as u32 });
        }
        let mut call = CallConfig::default();
        if self.swimlane {
            call.swimlane = Level::OrchestratorPhases;
            call.output_prefix = Some(self.out.join(SWIMLANE));
        }
        for step in 0..self.tokens {
            let callable = if step == 0 { prefill } else { decode };
            run_step(&mut worker, session, &chips, step, callable, &call)?;
        }
        worker.close()?;
        chips.iter().map(|chip| chip.generated(self.tokens)).collect()
    }

    /// Prints the text, and what the log says.
    fn explain(
        &self,
        model: &Model,
        sequences: &[Vec<u32>],
        compiled: &[CallableObjects],
        log_dir: &Path,
        console: &mut Console<'_>,
    ) -> Result<Exit> {
        let texts: Vec<String> = sequences
            .iter()
            .map(|ids| String::from_utf8_lossy(&model.tokenizer.decode(ids)).into_owned())
            .collect();
        let reading = read(&[Source::path(log_dir)])?;
        complain(&reading, &mut console.err);
        let timed = reading.trace.callables();

        let mut out = BufWriter::new(&mut console.out);
        for (chip, text) in texts.iter().enumerate() {
            writeln!(out, "chip {chip}: {text}")?;
        }
        writeln!(out)?;
        text::table(&mut out, &timed)?;
        let trace_file = self.out.join("trace.json");
        let spans = write_file(&trace_file, |out| chrome::write(out, &reading.trace, chrome::Lanes::Thread))?;
        writeln!(out, "\nWrote {} ({spans} spans) from {}", trace_file.display(), log_dir.display())?;
        if self.swimlane {
            let picture = self.out.join("swimlane.json");
            let records = read_chip_records(&[self.out.join(SWIMLANE)], &mut console.err)
                .map_err(anyhow::Error::msg)?;
            for warning in swimlane::warnings(&reading.trace, &records) {
                console.err.say(warning);
            }
            let phases = HostPhases::default();
            let written =
                write_file(&picture, |out| swimlane::write(out, &reading.trace, &records, &phases))?;
            let (spans, records) = (written.host_spans, written.chip_records);
            writeln!(out, "Wrote {} ({spans} host spans, {records} chip records)", picture.display())?;
        }
        if self.json {
            let text = texts.first().map_or("", String::as_str);
            let ids = sequences.first().map_or(&[][..], Vec::as_slice);
            let facts = self.facts(&reading, &timed, compiled, log_dir)?;
            let mut object =
                json!({ "text": text, "token_ids": ids, "tokens": self.tokens, "chips": self.chips });
            if let (Some(object), serde_json::Value::Object(facts)) = (object.as_object_mut(), facts) {
                object.extend(facts);
            }
            writeln!(out, "{object}")?;
        }
        out.flush()?;
        Ok(Exit::Fine)
    }

    /// The figures of `--json` that come from the log.
    fn facts(
        &self,
        reading: &Reading,
        timed: &[TimedCallable],
        compiled: &[CallableObjects],
        log_dir: &Path,
    ) -> Result<serde_json::Value> {
        let mut callables = Vec::new();
        let mut hids = Vec::new();
        for objects in compiled {
            let hid = CallableImage::load(objects)?.hid();
            hids.push(hid);
            let object = &objects.orchestration;
            callables.push(json!({ "name": objects.name, "hid": format!("{hid:x}"), "object": object.to_string_lossy() }));
        }
        let of =
            |index: usize| hids.get(index).and_then(|hid| timed.iter().find(|callable| callable.hid == *hid));
        let count =
            |callable: Option<&TimedCallable>| callable.map_or(0, |callable| callable.invocations.len());
        let us = |ns: i64| ns as f64 / 1000.0;
        let (prefill, decode) = (of(0), of(1));
        let wall = decode.and_then(|decode| decode.stage("runner_run.device_wall"));
        let counts = reading.trace.counts();
        Ok(json!({
            "log_dir": log_dir.to_string_lossy(),
            "trace": self.out.join("trace.json").to_string_lossy(),
            "callables": callables,
            "spans": reading.trace.spans().len(),
            "heads": counts.heads,
            "dropped": reading.trace.dropped(),
            "torn": counts.torn,
            "prefill_invocations": count(prefill),
            "decode_invocations": count(decode),
            // A figure that the log does not hold is null, not 0.
            "prefill_mean_us": prefill.and_then(|prefill| prefill.roots.first()).map(|root| us(root.stats.mean_ns)),
            "decode_mean_us": decode.and_then(|decode| decode.roots.first()).map(|root| us(root.stats.mean_ns)),
            "device_wall_mean_us": wall.map(|wall| us(wall.stats.mean_ns)),
            "effective_mean_us": decode.and_then(|decode| decode.effective_mean_ns).map(us),
        }))
    }
}

/// Removes what is in a demo's folder: not the folder, which may be `.` or a mount, and the marker last, so that a
/// removal cut short can be taken up again.
fn empty_out(out: &Path) -> io::Result<()> {
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?
        } else {
            fs::remove_file(entry.path())?
        }
    }
    fs::remove_file(out.join(MARKER))
}

/// A chip with its sequence.
struct Chip {
    buffers: DeviceBuffers,
    /// Word `i` is the token at position `i`.
    words: SharedMemory,
    prompt_tokens: u32,
}

impl Chip {
    fn generated(&self, tokens: u32) -> Result<Vec<u32>> {
        let id = |position: u32| {
            let mut word = [0; WORD_BYTES];
            self.words.read(position as usize * WORD_BYTES, &mut word)?;
            Ok(u32::from_ne_bytes(word))
        };
        (self.prompt_tokens..self.prompt_tokens + tokens).map(id).collect()
    }
}

/// Allocates a sequence's buffers on a chip and fills those that are constant.
fn put_on_chip(
    worker: &mut Worker,
    chip: usize,
    session: &Session,
    weights: &SharedMemory,
    rope: &SharedMemory,
) -> Result<DeviceBuffers> {
    let mut allocate = |bytes: u64| -> Result<u64> { Ok(worker.malloc(chip, usize::try_from(bytes)?)?.0) };
    let buffers = DeviceBuffers {
        weights: allocate(session.weight_bytes())?,
        cache: allocate(session.cache_bytes())?,
        rope: allocate(session.rope_bytes())?,
        logits: allocate(session.logits_bytes())?,
    };
    for (addr, memory) in [(buffers.weights, weights), (buffers.rope, rope)] {
        worker.copy_to(chip, simpler_platform::DeviceAddr(addr), &memory.slice(0, memory.bytes())?)?;
    }
    Ok(buffers)
}

/// One step of every chip's request, all of them at once.
fn run_step(
    worker: &mut Worker,
    session: &Session,
    chips: &[Chip],
    step: u32,
    callable: Callable,
    config: &CallConfig,
) -> Result<()> {
    let mut tickets = Vec::with_capacity(chips.len());
    for (index, chip) in chips.iter().enumerate() {
        let mut args = match step {
            0 => session.prefill_args(&chip.buffers, chip.words.addr(), chip.prompt_tokens)?,
            _ => session.decode_args(&chip.buffers, chip.words.addr(), chip.prompt_tokens + step - 1)?,
        };
        args.config = config.clone();
        tickets.push(worker.submit(index, callable, &args)?);
    }
    for ticket in tickets {
        worker.wait(ticket)?;
    }
    Ok(())
}

/// Where the real model is.
fn smollm2() -> Result<PathBuf> {
    let path = match std::env::var_os(SMOLLM2_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => cache_folder()?.join("models").join(SMOLLM2),
    };
    ensure!(path.is_file(), "{} is not there; `cargo xtask fetch-model` fetches it", path.display());
    Ok(path)
}

/// `$XDG_CACHE_HOME/simpler` or `~/.cache/simpler`.
fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("simpler"))
        .context("neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder")
}
