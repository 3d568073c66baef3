#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a text search can check; fails the build's tests where one is broken.

Debian keeps every library's headers in /usr/include, so no build target can stop a core from
including gRPC: this file does. Each rule is a function that yields (path, line, message).
`--self-test` proves that every rule notices a violation.
"""
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CODE = (".h", ".cc", ".cu", ".cuh")
TOP_LEVEL = {
    ".ci", ".clang-format", ".clang-tidy", ".git", ".gitignore", "CHANGELOG.md", "CMakeLists.txt",
    "CMakePresets.json", "LICENSE", "README.md", "agent", "build", "configs", "launcher", "proto",
    "scripts", "tests", "worker_runtime", ".cache", "gpu-check.json",
}

# Folder -> prefixes of "project includes" it may use. The longest matching folder decides.
# Generated messages are included as "muster/v1/….pb.h".
MAY_INCLUDE = {
    "proto/base/": ("proto/base/",),
    "proto/wire/": ("proto/base/", "proto/wire/", "muster/v1/"),
    "agent/core/": ("proto/base/", "agent/core/"),
    "agent/shell/": ("proto/", "muster/v1/", "agent/"),
    "launcher/rendezvous/core/": ("proto/base/", "launcher/rendezvous/core/"),
    "launcher/rendezvous/shell/": ("proto/", "muster/v1/", "launcher/rendezvous/"),
    "launcher/": ("proto/", "muster/v1/", "agent/", "launcher/"),
    "worker_runtime/": ("proto/", "muster/v1/", "worker_runtime/"),
}
STANDARD_ONLY = ("proto/base/", "agent/core/", "launcher/rendezvous/core/")
STANDARD_HEADERS = set("""
algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv
chrono cinttypes climits cmath codecvt compare complex concepts condition_variable coroutine csetjmp
csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime deque exception execution filesystem
format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream
iterator latch limits list locale map memory memory_resource mutex new numbers numeric optional
ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex source_location
span sstream stack stdexcept stop_token streambuf string string_view syncstream system_error thread
tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector
version""".split())
CORES = ("agent/core/", "launcher/rendezvous/core/")
# No clock, thread, environment, random device, file or unordered iteration in a core.
BANNED_IN_CORE = {
    "atomic", "condition_variable", "cstdio", "ctime", "filesystem", "fstream", "future", "iostream",
    "mutex", "random", "semaphore", "shared_mutex", "thread", "unordered_map", "unordered_set",
    "csignal", "latch", "barrier", "stop_token",
}
BANNED_CALLS = re.compile(r"\b(getenv|system_clock|steady_clock|random_device|rand\(|time\(nullptr)")
CUDA_HEADERS = re.compile(r"^(cuda|nccl|cublas|nvml)")
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")

FILE_LINES = 600      # the aim is 400; a file between the two is a candidate for a split
LINE_COLUMNS = 100
FUNCTION_LINES = 80   # the aim is 60 (clang-tidy); this catches what it is not run on


def in_any(path, folders):
    return any(path.startswith(folder) for folder in folders)


def include_rule(path, lines):
    folders = [folder for folder in MAY_INCLUDE if path.startswith(folder)]
    if not folders:
        return
    allowed = MAY_INCLUDE[max(folders, key=len)]
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        kind, name = match.groups()
        if kind == '"' and not in_any(name, allowed):
            yield path, number, f'may not include "{name}" (allowed: {", ".join(allowed)})'
        if kind == "<" and in_any(path, STANDARD_ONLY) and name not in STANDARD_HEADERS:
            yield path, number, f"may include the standard library only, not <{name}>"
        if kind == "<" and in_any(path, CORES) and name in BANNED_IN_CORE:
            yield path, number, f"<{name}> has no place in a core"
        if CUDA_HEADERS.match(name) and not re.match(
                r"worker_runtime/(cuda/|collectives/nccl)", path):
            yield path, number, f"<{name}> belongs under worker_runtime/cuda"


def core_rule(path, lines):
    if not in_any(path, CORES):
        return
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        found = BANNED_CALLS.search(code)
        if found:
            yield path, number, f"a core must not use {found.group(1)}: it comes in as an event"


def size_rule(path, lines):
    if len(lines) > FILE_LINES:
        yield path, FILE_LINES, f"{len(lines)} lines (limit {FILE_LINES}): split by what it decides"
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS:
            yield path, number, f"{len(line)} columns (limit {LINE_COLUMNS})"


def indent_of_head(lines, at):
    """Of the function whose body opens in line `at`; its head may end in initialisers."""
    while at > 0 and (lines[at - 1].endswith(",") or lines[at].lstrip().startswith(": ")):
        at -= 1
    return re.match(r"\s*", lines[at]).group()


def function_rule(path, lines):
    """A body is what stands between a line ending in '{' and the '}' at the same indent."""
    if not path.endswith(".cc") or path.startswith("tests/"):
        return
    start, indent = None, ""
    for number, line in enumerate(lines, 1):
        opens = re.match(r"(\s*)[A-Za-z_~:<].*\)( const)?( noexcept)?( override)?.*\{$", line)
        if start is None and opens and not re.match(r"\s*(namespace|class|struct|enum)\b", line):
            start, indent = number, indent_of_head(lines, number - 1)
        elif start is not None and line == indent + "}":
            if number - start - 1 > FUNCTION_LINES:
                yield path, start, f"function of {number - start - 1} lines (limit {FUNCTION_LINES})"
            start = None


def head_rule(path, lines):
    identifier = "SPDX-License-Identifier: Apache-2.0"
    if not lines or lines[0] not in (f"// {identifier}", f"/* {identifier} */"):
        yield path, 1, f"first line must be // {identifier} (or, in C, /* … */)"
    if path.endswith(".h") and "#pragma once" not in lines and not path.endswith("progress.h"):
        yield path, 1, "header without #pragma once"


def mark_rule(path, lines):
    for number, line in enumerate(lines, 1):
        if MARKS.search(line):
            yield path, number, "unfinished mark: finish it or write the reason without the mark"


def stream_rule(path, lines):
    """What a stream's own functions catch, an iterator on its buffer throws: a file of /proc whose
    process ends while it is read would end the agent."""
    if path.startswith("tests/"):
        return
    for number, line in enumerate(lines, 1):
        if "istreambuf_iterator" in line:
            yield path, number, "istreambuf_iterator throws: std::getline with '\\0' reads all"


RULES = (include_rule, core_rule, size_rule, function_rule, head_rule, mark_rule, stream_rule)


def code_files():
    for folder, folders, names in os.walk(ROOT):
        relative = os.path.relpath(folder, ROOT)
        folders[:] = sorted(f for f in folders if not (relative == "." and f in ("build", ".git")))
        for name in sorted(names):
            if name.endswith(CODE):
                yield os.path.normpath(os.path.join(relative, name))


def listed_rule():
    """Every source file is named by some CMake file: a test that nobody builds is no test."""
    text = ""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in ("build", ".git")]
        for name in names:
            if name == "CMakeLists.txt" or name.endswith(".cmake"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text += file.read()
    for path in code_files():
        if path.endswith(".cc") and os.path.basename(path) not in text:
            yield path, 1, "no CMake file names this source"


def top_level_rule():
    for name in sorted(os.listdir(ROOT)):
        if name not in TOP_LEVEL:
            yield name, 1, "the top level is fixed: nothing else grows there"


def self_test():
    cases = {
        include_rule: ("agent/core/x.cc", ["#include <thread>"]),
        core_rule: ("launcher/rendezvous/core/x.cc", ["auto t = steady_clock::now();"]),
        stream_rule: ("agent/shell/x.cc", ["std::istreambuf_iterator<char>(file)"]),
        size_rule: ("proto/base/x.cc", ["x" * 101]),
        function_rule: ("agent/x.cc", ["int f() {"] + ["  ;"] * 81 + ["}"]),
        head_rule: ("agent/x.h", ["#pragma once"]),
        mark_rule: ("agent/x.cc", ["// TO" + "DO later"]),
    }
    broken = [rule.__name__ for rule, case in cases.items() if not list(rule(*case))]
    more = [("agent/shell/x.cc", '#include "launcher/a.h"'),
            ("worker_runtime/x.cc", '#include "agent/core/a.h"'),
            ("proto/base/x.h", "#include <grpcpp/grpcpp.h>"),
            ("proto/wire/x.cc", '#include "agent/core/a.h"'),
            ("worker_runtime/cpu/x.cc", "#include <cuda.h>")]
    broken += [line for path, line in more if not list(include_rule(path, [line]))]
    if set(cases) != set(RULES):
        broken.append("a rule without a case")
    for name in broken:
        print(f"tidy self-test: did not notice: {name}")
    return not broken


def main():
    if "--self-test" in sys.argv:
        sys.exit(0 if self_test() else 1)
    problems = list(top_level_rule()) + list(listed_rule())
    count = 0
    for path in code_files():
        count += 1
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            lines = file.read().split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        for rule in RULES:
            problems += list(rule(path, lines))
    for path, line, message in problems:
        print(f"{path}:{line}: {message}")
    print(f"tidy: {count} files, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
