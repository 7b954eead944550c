"""Starts msdump and ``python FILE`` in milliseconds: a process that has imported msdump forks for each.

Forked are ``msdump``, ``python -m msdump``, ``python FILE`` and ``python -c TEXT``; any other ``python``
starts afresh. A signal to the started process reaches the fork; SIGKILL, which cannot be caught, ends the
fork, too, only later.

Each command is a process of its own, with its own arguments, environment, working directory, streams and exit
code, and ends as any program; only its imports are not proved.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path

from msdump.cli.program import main

# Slow imports, but not onnxruntime: its threads do not outlive a fork, which waits for them at its end.
_IMPORTED = (
    *(
        "onnx",
        "onnx_ir",
        "sample_nets.build",
        "msdump.config.mindspore",
        "msdump.graph.loader",
        "msdump.capture.recorder",
        "msdump.communication.collectives",
        "msdump.graph.compilation",
    ),
    *(f"msdump.cli.{name}" for name in ("compare", "convert", "query", "report", "show", "watch")),
)
_ROOT = Path(__file__).resolve().parents[1]
_FORWARDED = tuple(map(int, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGXCPU)))
_LONGEST = 1 << 17  # bytes of a command with its environment

# Stands as both on the path: hands itself over to the server, and ends as the fork does.
_CLIENT = """#!{python} -IS
import json, os, select, signal, socket, sys
name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
as_module = arguments[:2] == ["-m", "msdump"]
first = "".join(arguments[2:3] if as_module else arguments[:1])
is_program = as_module or first.endswith(".py") or (first == "-c" and len(arguments) > 1)
if not (name == "msdump" or is_program):
    program = os.path.join({programs!r}, name)
    os.execv(program, [program, *sys.argv[1:]])
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.connect({address!r})
wanted = json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode()
signals = [each for each in {forwarded!r} if signal.getsignal(each) is not signal.SIG_IGN]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
socket.send_fds(door, [wanted], [0, 1, 2])
program = int(door.recv(64) or 0)
awake, wake = socket.socketpair()
wake.setblocking(False)
signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)  # a signal just before the wait must end it
for each in signals if program else ():
    signal.signal(each, lambda number, _: os.kill(program, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
while door not in select.select([door, awake], [], [])[0]:
    awake.recv(64)
code = int(door.recv(64) or 255)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def programs(folder):
    """Start a server; yield the folder, made to hold its programs, to put before the others on the path."""
    address, real = str(folder / "door"), str(Path(sys.executable).parent)
    # the path of an environment may hold spaces, which cannot stand behind #!
    interpreter = os.path.realpath(sys.executable)
    for name in ("msdump", "python"):
        client = folder / name
        client.write_text(
            _CLIENT.format(python=interpreter, programs=real, address=address, forwarded=_FORWARDED)
        )
        client.chmod(0o755)
    command = [sys.executable, "-P", __file__, address]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as server:
        assert server.stdout.readline() == b"ready\n"
        yield folder
        server.stdin.close()  # at which it ends


def _keep(connection, program):
    """Tell a client its program and how it ended; end the program where the client is gone."""
    ended = os.pidfd_open(program)
    with contextlib.suppress(OSError):
        connection.send(str(program).encode())
    if ended not in select.select([ended, connection], [], [])[0]:
        os.kill(program, signal.SIGKILL)
    status = os.waitpid(program, 0)[1]
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(message, streams):
    """Take over a client's arguments, environment, working directory and standard streams."""
    sys.argv, environment, folder = json.loads(message)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def _run():
    """Run a client's command."""
    if Path(sys.argv[0]).name == "msdump":
        main()
    elif sys.argv[1] == "-m":
        del sys.argv[1:3]
        sys.path.insert(0, str(Path.cwd()))  # as for python -m msdump
        runpy.run_module("msdump", run_name="__main__", alter_sys=True)
    elif sys.argv[1] == "-c":
        text = sys.argv.pop(2)
        del sys.argv[0]
        sys.path.insert(0, "")  # as for python -c
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(text, vars(sys.modules["__main__"]))  # noqa: S102 - the program that is to run
    else:
        del sys.argv[0]
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))  # as for python FILE
        runpy.run_path(sys.argv[0], run_name="__main__")


def _serve(address):
    """Wait for clients until standard input ends; return in the fork that is to run a client's command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(address)
        door.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for keepers
        os.write(1, b"ready\n")
        while door in select.select([door, 0], [], [])[0]:
            connection = door.accept()[0]
            if os.fork():
                connection.close()
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            message, streams, *_ = socket.recv_fds(connection, _LONGEST, 3)
            if program := os.fork():
                for stream in streams:
                    os.close(stream)
                _keep(connection, program)
            connection.close()
            _become(message, streams)
            return
    os._exit(0)


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    assert "onnxruntime" not in sys.modules
    gc.collect()
    gc.freeze()  # else the end of every fork looks through all that is imported, and copies its memory
    _serve(sys.argv[1])
    _run()
