"""The tools, one module each: ``python -m simpler_setup.tools.strace_timing``."""
