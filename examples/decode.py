"""A real decoder on simulated chips, from Python: what `simpler demo` does, through the package `simpler`.

    python examples/decode.py --model tiny --chips 2 --tokens 32

Each chip serves one request: one prefill, then a decode for every further token (the end-of-text token does not stop
it). Prints the generated text of each chip and the table that the log holds; leaves the logs in DIR/log and a Chrome
trace in DIR/trace.json.

The order is that of any program of this kind: load and compile, share memory, start the worker, which forks the chips,
put the weights on each chip, run, close. What is printed afterwards comes from the log alone.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np

import simpler
from simpler import decoder
from simpler_setup.tools import strace_timing

# What the chips are asked, in turn, when no prompt is given.
PROMPTS = (
    "The capital of France is",
    "1, 2, 3, 4, 5, 6, 7, 8,",
    "The twelve months of the year are January, February, March,",
    "def gcd(a, b):\n    while b:\n        a, b = b,",
)
# Marks a folder that a demo made and the next one may replace.
MARKER = ".simpler-demo"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chips", type=int, default=2, help="chips, each in a process of its own")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to generate for each request")
    parser.add_argument("--model", default="tiny", help="tiny (built in), smollm2, or a GGUF file")
    parser.add_argument("--prompt", help="what every chip is to continue; without it each has a prompt of its own")
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    parser.add_argument("--platform", choices=("a2a3sim", "a5sim"), default="a2a3sim")
    parser.add_argument("--runtime", choices=("tmr", "hbg"), default="tmr", help="where graphs are built")
    parser.add_argument("--task-slots", action="store_true", help="time tasks in all 16 slots")
    parser.add_argument("--swimlane", action="store_true", help="record every task of the chips, and draw them")
    parser.add_argument("--kernels", type=Path, help="a folder whose C sources take the place of built-in ones")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="where to write")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    options = parser.parse_args()
    if options.chips < 1 or options.tokens < 1:
        parser.error("--chips and --tokens must be at least 1")
    return options


def make_out(out: Path) -> Path:
    """Makes the output folder; one that an earlier demo made is replaced, any other must be empty."""
    if out.exists() and any(out.iterdir()):
        if not (out / MARKER).exists():
            raise SystemExit(f"{out} is not empty and no demo made it; name another folder with --out")
        for entry in out.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != MARKER:
                entry.unlink()
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("Made by a demo of simpler, which may replace this folder.\n")
    return out


def generate(options: argparse.Namespace, model: decoder.Model, prompts: list[list[int]]) -> list[list[int]]:
    """Serves one request on each chip; the generated token ids by chip."""
    longest = max(len(prompt) for prompt in prompts)
    # The last token generated is never read, so its position needs no room.
    session = decoder.Session(model, longest + options.tokens - 1, task_slots=options.task_slots)
    prefill, decode = decoder.callables(options.kernels)

    worker = simpler.Worker(
        level=3,
        chips=options.chips,
        platform=options.platform,
        runtime=options.runtime,
        log_dir=options.out / "log",
    )
    worker.register(prefill)
    worker.register(decode)
    # The chips have this memory from the fork.
    weights = worker.shared(session.weight_bytes, np.uint8)
    weights[:] = model.weights
    words = [worker.shared(session.token_words, np.int32) for _ in prompts]
    for row, prompt in zip(words, prompts, strict=True):
        row[: len(prompt)] = prompt
    config = simpler.CallConfig()
    if options.swimlane:
        config = simpler.CallConfig(enable_chip_swimlane=4, output_prefix=options.out / "swimlane")

    with worker:
        buffers = []
        for chip in range(options.chips):
            memory = decoder.DeviceBuffers(
                weights=worker.malloc(session.weight_bytes, chip=chip),
                cache=worker.malloc(session.cache_bytes, chip=chip),
                rope=worker.malloc(session.rope_bytes, chip=chip),
                logits=worker.malloc(session.logits_bytes, chip=chip),
            )
            worker.copy_to(memory.weights, weights)
            worker.copy_to(memory.rope, session.rope_table())
            buffers.append(memory)
        # One step of every chip's request, all of them at once.
        for step in range(options.tokens):
            tickets = []
            for memory, row, prompt in zip(buffers, words, prompts, strict=True):
                if step == 0:
                    run = session.prefill_args(memory, row, len(prompt))
                else:
                    run = session.decode_args(memory, row, len(prompt) + step - 1)
                tickets.append(worker.submit(decode if step else prefill, run, config=config))
            for ticket in tickets:
                ticket.wait()

    return [row[len(prompt) :][: options.tokens].tolist() for row, prompt in zip(words, prompts, strict=True)]


def explain(options: argparse.Namespace, model: decoder.Model, sequences: list[list[int]]) -> None:
    """Prints the text, and what the log says."""
    texts = [model.decode(ids) for ids in sequences]
    for chip, text in enumerate(texts):
        print(f"chip {chip}: {text}")
    print(flush=True)
    log, trace = options.out / "log", options.out / "trace.json"
    command = [str(log), "--trace-out", str(trace)]
    if options.swimlane:
        command += ["--swimlane", str(options.out / "swimlane.json")]
        command += ["--chip-swimlane-records", str(options.out / "swimlane")]
    status = strace_timing.main(command)
    if status:
        raise SystemExit(status)
    if options.json:
        facts = {
            "text": texts[0],
            "token_ids": sequences[0],
            "sequences": sequences,
            "tokens": options.tokens,
            "chips": options.chips,
            "log_dir": str(log),
            "trace": str(trace),
        }
        print(json.dumps(facts))


def main() -> None:
    """Loads, runs, explains."""
    options = arguments()
    model = decoder.Model.load(options.model)
    prompts = []
    for chip in range(options.chips):
        text = options.prompt or PROMPTS[chip % len(PROMPTS)]
        prompt = model.encode(model.chat_prompt(text), special=True) if options.chat else model.encode(text)
        prompts.append(prompt)
    make_out(options.out)
    explain(options, model, generate(options, model, prompts))


if __name__ == "__main__":
    try:
        main()
    except simpler.SimplerError as error:
        print(f"decode: {error}", file=sys.stderr)
        sys.exit(2)
