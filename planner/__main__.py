"""``python -m planner`` and the console script.

Until `main` begins a signal does what Python does about it, so that this module imports almost nothing.
"""

import atexit
import gc
import os
import signal
import sys
import threading

_ENDING = (signal.SIGINT, signal.SIGTERM)
#: Allocations between two garbage collections. With Python's 700, a third of the time of a small instance is spent on
#: scanning the classes and functions of libraries, which are no garbage.
_OBJECTS = 200_000
_BAD_INPUT = 2


def main() -> None:
    """Run the command line and leave the process, even if a method does not."""
    if sys.dont_write_bytecode:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # in processes that are started, too
    from planner.process import environment

    said = environment.refusal()
    if said is not None:
        sys.exit(_print_refusal(said))
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    from planner.process import signals, streams

    out = streams.lasting_streams()
    signals.listen(lambda number: streams.end(number, out))
    atexit.register(_ignore)  # as the last of all: Python would give signals their usual meaning back
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    from planner.cli import first_page

    if first_page.is_asked(sys.argv[1:]):
        sys.exit(streams.exit_code_after_flush(first_page.show(), out))
    try:
        from planner.cli.app import main as command_line
        from planner.solving.worker import any_left_behind
    except Exception as error:
        said = environment.system_error_line(error)
        if said is None:
            raise
        sys.exit(_print_refusal(said))

    code = streams.exit_code_after_flush(command_line(), out)
    signals.listen(lambda _: os._exit(code))
    if any_left_behind():
        # A method that ignores the request to stop must not keep a finished command alive.
        os._exit(code)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)  # waits for them
    # All exit handlers have run; tearing down every module would take a tenth of a second.
    atexit._run_exitfuncs()
    os._exit(code)  # the streams hold nothing back


def _print_refusal(said: str) -> int:
    print(said, file=sys.stderr, flush=True)
    return _BAD_INPUT


def _ignore() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
