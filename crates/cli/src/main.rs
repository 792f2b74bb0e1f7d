//! The binary `simpler`.

use simpler_cli::{Console, Stream, run};
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (out, err) = (io::stdout(), io::stderr());
    let mut console = Console::new(
        Stream::new(io::stdout(), Some(out.as_fd())),
        Stream::new(io::stderr(), Some(err.as_fd())),
    );
    run(std::env::args_os(), &mut console).into()
}
