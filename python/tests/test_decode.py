"""The example program: a decoder from Python gives what the demo gives."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from processes import ROOT, in_own_process, python, spans

import simpler
from simpler import Worker

_DECODE = str(ROOT / "examples" / "decode.py")
#: What the tiny model goes on with after the first two prompts: this CPU's arithmetic and any other's agree on it.
_GOLDEN = [
    [264, 476, 262, 262, 386, 307, 342, 328],
    [335, 258, 299, 391, 274, 397, 498, 365],
]


def _decode(out: pathlib.Path, *options: str) -> tuple[dict[str, object], str]:
    result = python(_DECODE, "--tokens", "8", "--json", "--out", str(out), *options)
    assert result.returncode == 0, result.stderr
    facts: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return facts, result.stdout


@pytest.mark.parametrize("runtime", ["tmr", "hbg"])
@pytest.mark.parametrize("platform", ["a2a3sim", "a5sim"])
def test_the_tiny_model_goes_on_as_ever_and_the_log_says_how(
    platform: str, runtime: str, tmp_path: pathlib.Path
) -> None:
    facts, printed = _decode(tmp_path / "out", "--platform", platform, "--runtime", runtime)
    assert facts["sequences"] == _GOLDEN
    assert printed.startswith(f"chip 0: {facts['text']}\nchip 1: ")
    found = spans(tmp_path / "out" / "log")
    roots = [span for span in found if span.name == "simpler_run"]
    assert len(roots) == 2 * 8 and len({span.pid for span in roots}) == 2 and len({span.hid for span in roots}) == 2
    # Of each chip: one prefill, then decodes.
    for pid in {span.pid for span in roots}:
        hids = [span.hid for span in roots if span.pid == pid]
        assert hids.count(hids[0]) == 1 and hids.count(hids[1]) == 7
        assert f"callable hid={hids[1]} — 14 invocation(s)" in printed
    trace = json.loads((tmp_path / "out" / "trace.json").read_text())
    assert any(event.get("name", "").endswith("runner_run") for event in trace["traceEvents"])


def test_a_folder_of_an_earlier_demo_is_replaced_and_any_other_is_refused(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        facts, _ = _decode(out, "--chips", "1", "--swimlane", "--task-slots")
        assert facts["sequences"] == _GOLDEN[:1]
    assert len(list((out / "log").iterdir())) == 2, "the second one's log alone"
    assert json.loads((out / "swimlane.json").read_text())["traceEvents"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    result = python(_DECODE, "--out", str(tmp_path / "other"))
    assert result.returncode != 0 and "no demo made it" in result.stderr
    assert (tmp_path / "other" / "precious").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--model", "/no/such.gguf"], "decode: cannot read /no/such.gguf"),
        (["--tokens", "100000"], "decode: session: a capacity of"),
        (["--chips", "17"], "decode: worker: level 3: 17 chips are more than 16"),
        (["--chat"], "decode: chat template: this model has none"),
        (["--kernels", "/no/such"], "decode: /no/such: no such folder"),
        (["--tokens", "0"], "must be at least 1"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_a_status(options: list[str], sentence: str, tmp_path: pathlib.Path) -> None:
    result = python(_DECODE, "--out", str(tmp_path / "out"), *options)
    assert result.returncode == 2
    assert sentence in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("options", [[], ["--prompt", "quite another one", "--chips", "1", "--runtime", "hbg"]])
def test_the_program_gives_what_the_demo_gives(options: list[str], tmp_path: pathlib.Path) -> None:
    demo = python("-m", "simpler", "demo", "--tokens", "8", "--json", "--out", str(tmp_path / "demo"), *options)
    assert demo.returncode == 0, demo.stderr
    theirs = json.loads(demo.stdout.splitlines()[-1])
    ours, _ = _decode(tmp_path / "out", *options)
    for name in ("text", "token_ids", "tokens", "chips"):
        assert ours[name] == theirs[name]


@pytest.mark.parametrize("level", [2, 3])
@in_own_process
def test_tokens_may_lie_in_any_array_of_words(level: int) -> None:
    from simpler import decoder

    model = decoder.Model.tiny()
    assert model.config.vocab > 256 and model.config.rms_eps < 1e-3
    prompt = model.encode("The capital of France is")
    assert model.decode(prompt) == "The capital of France is"
    session = decoder.Session(model, len(prompt) + 7)
    assert session.rope_table().nbytes == session.rope_bytes and len(model.weights) == session.weight_bytes
    prefill, decode = decoder.callables()
    with Worker(level=level) as worker:
        worker.register(prefill)
        worker.register(decode)
        sizes = (session.weight_bytes, session.cache_bytes, session.rope_bytes, session.logits_bytes)
        buffers = decoder.DeviceBuffers(*map(worker.malloc, sizes))
        worker.copy_to(buffers.weights, model.weights)
        worker.copy_to(buffers.rope, session.rope_table())
        # Staged at level 3, and used as it is at level 2.
        words = np.zeros(session.token_words, np.int32)
        words[: len(prompt)] = prompt
        worker.run(prefill, session.prefill_args(buffers, words, len(prompt)))
        for position in range(len(prompt), len(prompt) + 7):
            worker.run(decode, session.decode_args(buffers, words, position))
        assert words[len(prompt) :].tolist() == _GOLDEN[0]
        logits = np.zeros(model.config.vocab, np.float32)
        worker.copy_from(logits, buffers.logits)
        assert int(logits.argmax()) == _GOLDEN[0][-1]
        with pytest.raises(simpler.ArgumentError, match="the words of a sequence are"):
            session.decode_args(buffers, words[:-1], 1)
        with pytest.raises(simpler.ModelError, match="of a capacity of"):
            session.decode_args(buffers, words, session.token_words)


def test_the_real_model_goes_on_as_the_demo_s(tmp_path: pathlib.Path) -> None:
    from simpler import decoder

    try:
        decoder.Model.load("smollm2")
    except simpler.ModelError as error:
        pytest.skip(f"skipped: {error}")
    options = ["--model", "smollm2", "--chips", "1", "--chat", "--prompt", "What is the capital of France?"]
    ours, _ = _decode(tmp_path / "out", *options)
    assert "Paris" in str(ours["text"])


def test_the_program_runs_as_the_readme_says(tmp_path: pathlib.Path) -> None:
    assert shutil.which("gcc") or os.environ.get("CC"), "the kernels need a C compiler"
    result = python(_DECODE, "--help")
    assert result.returncode == 0 and "--model" in result.stdout
