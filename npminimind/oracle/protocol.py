"""Speak to a program under test: one JSON request a line on its stdin, one JSON answer a line on its stdout.

The protocol is described in ``reference_weights/vectors/PROTOCOL.md``.
"""

import collections
import json
import os
import queue
import signal
import subprocess
import threading

from .arrays import decode, encode
from .judging import Problem

VERSION = 1
MOST_CRASHES = 5  # deaths and hangs that a run puts up with
START = 30.0  # seconds that a program may take for its greeting: interpreters and models take time to load
LAST_LINES = 2  # of stderr, quoted when the program dies
QUOTED = 80  # characters of a stray line


class CouldNotRun(ValueError):
    """The program does not start, does not speak the protocol, or dies again and again."""


class Port:
    """A running program that answers requests; it is started again when it dies or hangs.

    Parameters
    ----------
    command : list of str
    timeout : float
        Seconds for one answer.

    Raises
    ------
    CouldNotRun
    """

    def __init__(self, command, timeout=10.0):
        self.command, self.timeout = list(command), timeout
        self.crashes, self.number, self.form = 0, 0, "data"
        self.start()

    def start(self):
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise CouldNotRun(f"{self.command[0]} can't be started: {error.strerror or error}") from None
        self.lines, self.requests = queue.Queue(), queue.Queue()
        self.errors = collections.deque(maxlen=LAST_LINES)
        for work in (self.read_answers, self.write_requests, self.read_errors):
            self.thread = threading.Thread(target=work, args=(self.process,), daemon=True)
            self.thread.start()
        self.greet()

    def greet(self):
        """The first request: may arrays be sent as bytes? A program that does not know it answers unsupported."""
        answer, problem = self.ask("hello", {"protocol": VERSION})
        if problem and problem.kind != "unsupported":
            raise CouldNotRun(f"{' '.join(self.command)}: {problem.message}")
        if isinstance(answer, dict) and answer.get("arrays") in ("data", "base64"):
            self.form = answer["arrays"]

    def read_answers(self, process):
        lines = self.lines
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def read_errors(self, process):
        errors = self.errors
        for line in process.stderr:
            errors.append(line.decode("utf-8", "replace").rstrip())

    def write_requests(self, process):
        requests = self.requests
        try:
            while (request := requests.get()) is not None:
                process.stdin.write(request)
                process.stdin.flush()
            process.stdin.close()
        except OSError:  # it has died; the reader says so
            pass

    def ask(self, op, args):
        """One request.

        Returns
        -------
        out : decoded answer, or None
        problem : Problem or None
            ``unsupported``; ``raised``: it answered with an error; ``noise``, ``protocol``, ``hung``, ``died``.
        """
        self.number += 1
        request = {"id": self.number, "op": op, "args": encode(args, self.form)}
        self.requests.put(json.dumps(request).encode() + b"\n")
        noise, limit = None, self.timeout if op != "hello" else max(self.timeout, START)
        while True:
            try:
                line = self.lines.get(timeout=limit)
            except queue.Empty:
                stray = f"; {noise.message}" if noise else ""
                return None, self.crash("hung", f"no answer within {limit:g} seconds{stray}")
            if line is None:
                return None, self.crash("died", self.last_words())
            answer = parsed(line)
            if isinstance(answer, dict) and answer.get("id") == self.number:
                break
            noise = Problem(
                "noise", f"its stdout holds a line that is no answer to request {self.number}: {quoted(line)}"
            )
        return (None, noise) if noise else read(answer)

    def crash(self, kind, message):
        """Note a death or hang, and start the program again; at the limit, give up."""
        self.kill()
        self.crashes += 1
        if self.crashes >= MOST_CRASHES:
            raise CouldNotRun(
                f"{' '.join(self.command)}: {message}; it has died or hung {self.crashes} times, giving up"
            )
        if self.number > 1:  # else it was the greeting
            self.start()
        return Problem(kind, message)

    def last_words(self):
        code = self.process.wait()
        self.thread.join(timeout=1)  # all of its stderr has been read
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        words = f"; the end of its stderr: {' / '.join(self.errors)}" if self.errors else ""
        return f"the program {how} instead of answering{words}"

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (OSError, AttributeError):
            self.process.kill()
        self.process.wait()

    def close(self):
        """Close its stdin, which asks it to end; a moment later, kill it."""
        self.requests.put(None)
        try:
            self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def parsed(line):
    try:
        return json.loads(line)
    except ValueError:
        return None


def quoted(line):
    text = line.decode("utf-8", "replace").rstrip()
    return repr(text if len(text) <= QUOTED else text[:QUOTED] + "…") + "; write messages to stderr"


def read(answer):
    """The meaning of an answer line."""
    if answer.get("unsupported"):
        return None, Problem("unsupported", "unsupported")
    if "error" in answer:
        return None, Problem("raised", f"it answers with an error: {answer['error']}")
    if "out" not in answer:
        return None, Problem("protocol", 'its answer has none of "out", "error", "unsupported"')
    try:
        return decode(answer["out"]), None
    except ValueError as error:
        return None, Problem("protocol", f"its answer can't be read: {error}")
