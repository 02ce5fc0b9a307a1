"""Methods of users that hang, die, lie, attack, or leave processes behind: one table.

Each is a Python file with a function ``solve`` for ``chain8`` of `stage_partitioning`. ``GOOD`` is a plan of it,
``REPLIES`` the number of the pipe that replies go through, and ``away`` leaves a process behind.
"""

import textwrap
from dataclasses import dataclass

#: Before each of the files, on one line.
_BEGINNING = (
    "import ctypes, json, multiprocessing, os, pickle, resource, signal, subprocess, sys, threading, time; "
    "REPLIES = int(sys.argv[-1]); HERE = os.path.dirname(__file__); "
    "GOOD = {'stages': [{'nodes': list(range(8)), 'dp_degree': 1, 'tp_degree': 1, "
    "'tmpcs': {str(n): 'keep' for n in range(8)}}]}"
)
_AWAY = """
def away(code="import time; time.sleep(600)"):
    if os.fork():
        return os.wait()
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execve(sys.executable, [sys.executable, "-c", code], {})
"""
PLAN, ERROR, STOPPED, INVALID = "its plan counts", "error", "ended at the limit", "no plan of the instance"


@dataclass(frozen=True)
class Hostile:
    """``words`` are in the result's reason."""

    tries: str
    comes: str
    body: str
    words: str = ""
    time_s: float = 1.5
    is_cheap: bool = False

    @property
    def text(self) -> str:
        """The file."""
        body = textwrap.dedent(self.body).strip()
        if not body.startswith(("def ", "class ", "from ", "@")):
            body = f"def solve(instance):\n{textwrap.indent(body, '    ')}"
        return f"{_BEGINNING}\n{_AWAY}\n{body}\n"


_NO_REPLY = "its process sent what is no reply"

TABLE = (
    # What does not end.
    Hostile("ignores all signals and computes for ever", STOPPED,
            "for n in signal.valid_signals() - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass"),
    Hostile("leaves a thread that never ends", PLAN,
            "threading.Thread(target=time.sleep, args=(600,)).start()\nreturn GOOD", is_cheap=True),
    Hostile("sleeps when its process ends", PLAN, "import atexit; atexit.register(time.sleep, 600)\nreturn GOOD"),
    Hostile("goes on after its watch has stopped", STOPPED,
            "def solve(instance, watch):\n    while True: watch.stopped()"),
    Hostile("sends valid plans for ever, from a process of another session as well", PLAN, """
        os.set_inheritable(REPLIES, True)
        if os.fork() == 0: os.setsid()
        line = json.dumps({"kind": "plan", "plan": GOOD}).encode() + b"\\n"
        while True: os.write(REPLIES, line)
        """, "its process was ended at the time limit"),
    Hostile("prints for ever", STOPPED, "while True: os.write(2, 65536 * b'\\x1b]0;x')"),
    Hostile("prints a gigabyte", PLAN, "for _ in range(1 << 14): os.write(1, 65536 * b'x')\nreturn GOOD", time_s=30.0),
    # What dies.
    Hostile("leaves with os._exit(0)", ERROR, "os._exit(0)", "its process ended with exit code 0"),
    Hostile("reads address 0", ERROR, "ctypes.string_at(0)", "its process was ended by SIGSEGV"),
    Hostile("takes all memory, up to a limit", ERROR, """
        most = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 28)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        held = []
        while True: held.append(bytearray(1 << 24))
        """, "raised MemoryError", time_s=20.0),
    Hostile("sets its limits to nothing and computes", ERROR, """
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1, int(time.process_time()) + 1))
        while True: pass
        """, "its process was ended by SIG", time_s=60.0),
    Hostile("raises an error that cannot be printed", ERROR,
            "class E(BaseException):\n    def __str__(self): raise self\ndef solve(instance): raise E",
            "raised E: (an error without words)", is_cheap=True),
    # What attacks processes.
    Hostile("ends its parent", ERROR, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)", "ended by SIGKILL"),
    Hostile("sends Ctrl-C, SIGTERM and SIGHUP to its group and its parent", ERROR, """
        for n in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getppid(), n)
            os.killpg(0, n)
        time.sleep(600)
        """, "ended by SIG"),
    Hostile("leaves a process in another session with an empty environment", PLAN, "away()\nreturn GOOD",
            is_cheap=True),
    Hostile(
        "leaves one and ends the parent of its parent",
        ERROR,
        "above = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1]\n"
        "away(); os.kill(int(above), signal.SIGKILL); time.sleep(600)",
        "ended by SIGKILL",
    ),
    Hostile("leaves one below a process that adopts orphans (a subreaper)", PLAN,
            "if os.fork() == 0:\n    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); away(); time.sleep(600)\nreturn GOOD"),
    Hostile("leaves one that forks, ends, and has another session each time", PLAN, """
        away("import os, time\\nwhile True:\\n if os.fork(): os._exit(0)\\n os.setsid(); time.sleep(0.002)")
        return GOOD
        """),
    Hostile(
        "leaves a pool of workers that compute",
        PLAN,
        "pool = multiprocessing.get_context('fork').Pool(2); pool.map_async(max, [range(10**12)] * 2)\n"
        "solve.pool = pool; return GOOD",
    ),
    Hostile("returns in a fork as well", PLAN, "if os.fork() == 0: return {'stages': []}\ntime.sleep(0.2); return GOOD",
            is_cheap=True),
    # What attacks files and pipes.
    Hostile("closes all its files", ERROR, "os.closerange(0, 4096); return GOOD", "its process ended with exit code 1"),
    Hostile("writes to each of its files", ERROR,
            "for n in range(256):\n    try: os.write(n, b'\\xff\\x00{\\n')\n    except OSError: pass\nreturn GOOD",
            f"{_NO_REPLY}: Invalid JSON", is_cheap=True),
    Hostile("changes its own file", PLAN, "open(__file__, 'w').write('1 / 0'); return GOOD"),
    Hostile("writes to the file of events", PLAN, "open(HERE + '/events', 'ab').write(b'\\xff{\\n'); return GOOD"),
    # What is no reply.
    Hostile(
        "forges a reply of another kind",
        ERROR,
        """os.write(REPLIES, b'{"kind": "proved", "value": 1}\\n'); time.sleep(600)""",
        f"{_NO_REPLY}: Input tag 'proved'",
        is_cheap=True,
    ),
    Hostile("forges a plan of a million lists in each other", ERROR, """
        os.write(REPLIES, b'{"kind": "returned", "late": false, "plan": {"stages": ' + 10**6 * b'[' + b'\\n')
        time.sleep(600)
        """, f"{_NO_REPLY}: Invalid JSON: recursion limit exceeded"),
    Hostile("sends a line of 100 MB", ERROR, "while True: os.write(REPLIES, 65536 * b'[')",
            "its process sent a reply of more than 67108864 bytes", time_s=30.0),
    Hostile(
        "forges an error of a million lines",
        ERROR,
        """os.write(REPLIES, json.dumps({"kind": "failed", "words": 10**6 * "\\n\\x1b[2J"}).encode() + b"\\n")""",
        f"{_NO_REPLY}: failed.words",
    ),
    # What is returned.
    Hostile("changes the modules that the planner uses in its process", ERROR,
            "json.dumps = lambda *a, **k: '[]'; pickle.loads = os.abort; sys.modules.clear(); return GOOD"),
    Hostile("changes the instance", PLAN, """
        for layer in instance.layers: object.__setattr__(layer, "tmpcs", {})
        object.__setattr__(instance, "memory_bytes", 1e30)
        return GOOD
        """, is_cheap=True),
    Hostile("returns an object that lies about its class, raises when compared, and runs code when unpickled",
            ERROR, """
        class Evil:
            __class__ = property(lambda self: 1 / 0)
            __eq__ = __hash__ = __iter__ = __repr__ = lambda self, *other: 1 / 0
            def __reduce__(self): return os.abort, ()
        def solve(instance): return Evil()
        """, "returned what cannot be read", is_cheap=True),
    Hostile("returns texts, truth values, negative and huge numbers where whole numbers are expected", INVALID, """
        def solve(instance, watch):
            stage = GOOD["stages"][0]
            for wrong in ("1", True, -1, 0, 2**62, 1.5, None, [], {}):
                for name in stage:
                    watch.plan({"stages": [{**stage, name: wrong}]})
                watch.plan({"stages": [wrong]}); watch.plan({"stages": wrong})
            return {"stages": [{**stage, "nodes": [True, -1, 2**62]}]}
        """, time_s=10.0),
    Hostile("returns a number of 5,000 digits", ERROR, "return {'stages': 10**5000}", "returned what is no JSON"),
    Hostile("reports a plan with the objective NaN, and bounds that are none", PLAN, """
        def solve(instance, watch):
            watch.plan(GOOD, float("nan"))
            for bound in (float("nan"), float("inf"), 1e308, -1.0): watch.bound(bound)
        """, "does not count: it does not claim to be exact"),
)  # fmt: skip
