"""An accelerator runtime whose every run explains itself in its own log.

Importing this package loads no extension, so that a broken or missing build can still say why: what needs
``simpler._task_interface`` loads it at its first use.
"""
