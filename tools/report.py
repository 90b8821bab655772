#!/usr/bin/python3
"""Draws what runs left behind as one HTML page that opens without a network: loss and accuracy,
scale and underflow by layer, which limit decided, histograms with the format's range, probe errors,
what other choices would have lost, events and time. Several runs stand side by side with the same
axes. Runs may still be going on, or have been killed; --serve shows them as they go on.

usage: tools/report.py RUN_DIR... -o report.html [--static] [--png DIR] [--title TEXT] [--tensor dx]
                       [--baseline RUN] [--seeds auto|mean|each] [--draw N] [--predictions FOLDER]...
       tools/report.py RUN_DIR... --serve [PORT]

Exit status: 0; 1 packages missing; 2 command line, or a port that is taken; 3 a folder
that holds no run; 6 cannot write.
"""
import argparse
import contextlib
import os
import stat
import sys
import textwrap
import warnings

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "python"), HERE]  # python -m ada_train.report starts elsewhere
TENSORS = ["y", "p", "w", "dx", "dx2", "ds", "dq", "dk", "dv", "dw", "dy", "forward.x",
           "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy", "update", "master", "state", "sent"]


def tensor_name(text):
    if text not in TENSORS:
        names = textwrap.fill(", ".join(TENSORS), 76, initial_indent="  ", subsequent_indent="  ")
        raise argparse.ArgumentTypeError(f"'{text}' is no tensor of the logs; choose from\n{names}")
    return text


def port(text):
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is no port, a number from 0 to 65535 (0: a free "
                                         "one); folders of runs stand before --serve")
    return int(text)


def arguments():
    from ada_train.report import DRAWN, MOST
    from help_format import WrappedHelp
    parser = argparse.ArgumentParser(
        prog="report.py", formatter_class=WrappedHelp,
        description=__doc__.split("\n\n", maxsplit=1)[0],
        epilog="examples:\n  tools/report.py runs/fashion_quickstart -o report.html\n"
               "  tools/report.py runs/none runs/adaptive -o compare.html --png pictures")
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="folder of a run, or of a sweep")
    parser.add_argument("-o", "--output", metavar="FILE", help="the page to write")
    parser.add_argument("--serve", nargs="?", const=0, type=port, metavar="PORT",
                        help="instead: show the page of runs that go on at an address of this "
                             "machine alone, which is printed, until Ctrl-C; default: a free port")
    parser.add_argument("--static", action="store_true",
                        help="still pictures, in a page without JavaScript; needs no Plotly")
    parser.add_argument("--png", metavar="DIR", help="write each picture there as well")
    parser.add_argument("--title", help="of the page; default: the runs' names")
    parser.add_argument("--tensor", default="dx", type=tensor_name, metavar="TENSOR",
                        help=f"whose scales, underflow and histograms are drawn: {', '.join(TENSORS)}; "
                             "dx has attention's ds, dq, dk and dv as rows of their own, y its p; "
                             "forward.x to dw.dy: operands of products, as they are rounded; "
                             "update: what the optimizer asked of the weights and rounding "
                             "swallowed; default: dx")
    parser.add_argument("--seeds", default="auto", choices=["auto", "mean", "each"],
                        help="runs that differ in their seed alone: as one, the mean, or each by "
                             "itself; default: the mean from 4 runs on")
    parser.add_argument("--draw", type=int, default=DRAWN, metavar="N",
                        help="runs (means of seeds) whose layers are drawn; of more N at even "
                             "distances are, and tables and pictures of all runs have the others "
                             f"too; at most {MOST}; default: {DRAWN}")
    parser.add_argument("--baseline", metavar="RUN", help="name or folder of the run whose loss is "
                        "taken from the others'; default: the first in fp32, else the first")
    parser.add_argument("--predictions", action="append", metavar="FOLDER",
                        help="pictures that `ada-train evaluate --predictions FOLDER` wrote, one "
                             "folder for each run in their order; default: RUN_DIR/predictions")
    options = parser.parse_args()
    options.runs = list(dict.fromkeys(os.path.normpath(folder) for folder in options.runs))
    if not 1 <= options.draw <= MOST:
        parser.error(f"--draw {options.draw}: expected a number from 1 to {MOST}; pictures of more runs "
                     "would be higher than a PNG may be")
    if options.serve is not None and (options.output or options.static or options.png):
        parser.error("--serve shows a page and writes none: leave -o, --static and --png out")
    if options.serve is None and options.output is None:
        parser.error("the following arguments are required: -o/--output, or --serve")
    if options.serve is None:
        check_output(parser, options)
    for folder in options.predictions or []:
        if not os.path.isdir(folder):
            parser.error(f"--predictions {folder}: no such folder; expected one that `ada-train "
                         "evaluate --predictions` wrote")
    return options


def check_output(parser, options):
    if os.path.isdir(options.output):
        parser.error(f"-o {options.output} is a folder; name the HTML file to write")
    refuse_run_files(parser, options.output)


def fail(status, message):
    print(f"report.py: {message}", file=sys.stderr)
    sys.exit(status)


def read(options):
    """(the runs, the page's title)."""
    from ada_train.report import groups, selection, verdict
    folders = groups.expand(options.runs)
    if options.predictions and len(options.predictions) != len(folders):
        fail(2, f"--predictions names {len(options.predictions)} folders for {len(folders)} runs; "
                "expected one for each, in their order")
    chosen = selection.read(folders, options.seeds, options.tensor, options.draw)
    if options.baseline and verdict.baseline(chosen.runs, options.baseline) is None:
        fail(2, f"--baseline {options.baseline}: no such run; choose from "
             + ", ".join(run.name for run in chosen.runs))
    return chosen, options.title or "Report: " + groups.title(chosen.runs)


def sections_of(chosen, options):
    from ada_train.report import sections
    return sections.all_sections(chosen, options.tensor, options.predictions, options.baseline)


def write(options):
    from ada_train.report import live, page, style
    if not options.static:
        live.library()  # before anything is read or made
    chosen, title = read(options)
    os.makedirs(os.path.dirname(options.output) or ".", exist_ok=True)
    if options.png:
        os.makedirs(options.png, exist_ok=True)
    with style.look():
        parts = sections_of(chosen, options)
        text = (page.page(title, chosen.drawn, parts, options.png) if options.static else
                live.whole(title, chosen, parts, options.tensor, options.png))
    put(options.output, text)


def serve(options):
    """Shows the page until Ctrl-C."""
    from ada_train.report import groups, live, style
    from ada_train.report.serve import Server
    chosen, title = read(options)

    def make():
        chosen, title = read(options)
        with style.look():
            return live.content(title, chosen, sections_of(chosen, options), options.tensor)
    try:
        server = Server(options.serve, title, [run.label for run in chosen.drawn], make,
                        groups.expand(options.runs))
    except OSError as error:
        fail(2, f"port {options.serve} of this machine cannot be used ({error.strerror}); name "
                "another, or none for a free one")
    print(f"{server.address}\n(from elsewhere: ssh -L {server.server_address[1]}:127.0.0.1:"
          f"{server.server_address[1]} HERE, then the same address; Ctrl-C ends it)", flush=True)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def refuse_run_files(parser, output):
    """A page in the place of a run's own file would replace it."""
    import whole_file
    run = whole_file.keeper(output)
    if run is not None:
        parser.error(f"-o {output} is a file of the run in {run}; name the HTML file to write")


def put(path, text):
    """The whole page, or the old file as it was. A device or FIFO is written into, never replaced."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    place = os.path.realpath(os.path.dirname(path) or ".") + "/"
    own = os.path.islink(path) and (place == "/dev/" or place.startswith("/proc/"))
    if own or not stat.S_ISREG(mode):
        fail(6, f"{path} is no regular file; name the HTML file to write")
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError:
        if os.path.exists(beside):
            os.remove(beside)
        raise


def main():
    options = arguments()
    try:
        import matplotlib  # noqa: F401
        import pandas
        import yaml  # noqa: F401
    except ImportError as error:
        fail(1, f"{error}: apt-get install python3-matplotlib python3-pandas python3-yaml "
                "(tools/setup.sh does), or pip install matplotlib pandas PyYAML")
    warnings.simplefilter("ignore", category=RuntimeWarning)  # means of nothing are NaN: shown so
    warnings.simplefilter("ignore", category=pandas.errors.DtypeWarning)  # load makes numbers
    from ada_train.report.live import MissingLibrary
    from ada_train.report.load import Unreadable
    try:
        write(options) if options.serve is None else serve(options)
    except KeyboardInterrupt:
        sys.exit(130)
    except MissingLibrary as error:
        fail(1, str(error))
    except Unreadable as error:
        fail(3, str(error))
    except OSError as error:
        fail(6, f"cannot write {options.output}: {error.strerror} ({error.filename})")


if __name__ == "__main__":
    main()
