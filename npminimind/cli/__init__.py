"""The ``npminimind`` command: one small module a subcommand, imported only when it is asked for.

A subcommand's module has ``HELP`` (one line), ``EXAMPLES`` (optional), ``add_arguments(parser)`` and
``run(args)``, which returns the exit code. What a run produces goes to stdout, everything else to stderr.
"""

import argparse
import importlib
import importlib.util
import sys
import warnings

COMMANDS = ("generate", "chat", "info", "score", "trace", "compare", "conform", "convert", "bench")

FINE, COULD_NOT_RUN, BROKEN_PIPE, INTERRUPTED = 0, 2, 141, 130  # the last two as shells count signals

OVERVIEW = """\
usage: npminimind COMMAND [options]      (npminimind COMMAND --help says more)

MiniMind's inference as explicit NumPy functions. Without --model, the model in the box runs.

commands:
{commands}

examples:
  npminimind generate "Once upon a time"          continue a text
  npminimind generate "Once upon a time" --steps  see how each token is chosen
  npminimind chat                                 talk; MiniMind's own options work too
  npminimind info path/to/MiniMind3               what is in a checkpoint

exit codes: 0 fine, 1 it ran and differs (compare, conform), 2 it could not run, 130 interrupted
"""


class UsageError(ValueError):
    """The command line can't be meant."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line."""

    def error(self, message):
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv=None):
    """Run one command.

    Parameters
    ----------
    argv : list of str, optional
        ``sys.argv[1:]`` by default.

    Returns
    -------
    int
        0 fine, 1 it ran and differs, 2 it could not run (one line on stderr), 130 after Ctrl-C, 141 where the
        reader of a pipe has gone.
    """
    speak_utf8()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: complain(message)
            code = run_command(sys.argv[1:] if argv is None else list(argv))
            if sys.stdout is not None:
                sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except (ValueError, OSError, MemoryError, ImportError) as error:
        complain(error)
        return COULD_NOT_RUN


def run_command(argv):
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview(), end="")
        return FINE
    if argv[0] in ("-V", "--version"):
        from .. import __version__

        print(f"npminimind {__version__}")
        return FINE
    if argv[0] not in commands():
        raise UsageError(f"there is no command {argv[0]!r}{alike(argv[0])}; npminimind --help lists them")
    command = module_of(argv[0])
    parser = Parser(
        prog=f"npminimind {argv[0]}",
        description=command.HELP,
        epilog=getattr(command, "EXAMPLES", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    try:
        args = parser.parse_args(with_hyphens(argv[1:]))
    except SystemExit as leave:  # --help has been printed
        return leave.code or FINE
    return command.run(args)


def commands():
    """The commands whose modules are there, in the order of the help."""
    return [name for name in COMMANDS if importlib.util.find_spec(f"{__name__}.{name}")]


def module_of(name):
    return importlib.import_module(f"{__name__}.{name}")


def overview():
    lines = [f"  {name:10s}{module_of(name).HELP}" for name in commands()]
    return OVERVIEW.format(commands="\n".join(lines))


def alike(name):
    from difflib import get_close_matches

    match = get_close_matches(name, commands(), n=1)
    return f" (did you mean {match[0]}?)" if match else ""


def with_hyphens(argv):
    """Both spellings of an option: ``--max_new_tokens`` is ``--max-new-tokens``. What follows ``--`` stays.

    Examples
    --------
    >>> with_hyphens(["--top_p=0.9", "--stop", "a_b", "--", "--top_p"])
    ['--top-p=0.9', '--stop', 'a_b', '--', '--top_p']
    """
    end = argv.index("--") if "--" in argv else len(argv)
    return [hyphenated(one) for one in argv[:end]] + argv[end:]


def hyphenated(argument):
    name, equals, value = argument.partition("=")
    plain = name.startswith("--") and not any(c.isspace() for c in name)
    return (name.replace("_", "-") if plain else name) + equals + value


# ---------------------------------------------------------------------------------------------
# Streams


def speak_utf8():
    """Text is UTF-8 everywhere, whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def complain(error):
    """One line on stderr."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, MemoryError):
        text = f"not enough memory{': ' if text else ''}{text}; try a smaller model or a shorter text"
    print("npminimind:", " ".join(text.split()), file=sys.stderr)
