// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/bench_flags.h"

#include <optional>

#include <CLI/CLI.hpp>

#include "worker_runtime/bin/command_line.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {
namespace {

constexpr const char* kHelpEnd = R"(
What it does: all ranks add the same number of values together (an all-reduce,
as training does with gradients), size after size, from --min-bytes to
--max-bytes. Every size runs --warmup times unmeasured and --iterations times
measured; then every rank checks every result. The values are such that the
right sums need no rounding: one wrong bit counts.

What it prints, on rank 0:
  bytes, count  of the values, in the type that travels
  type    fp32, bf16 or fp16
  time    microseconds from calling to having the sums: the median of a rank's
          iterations, of the slowest rank. A 16-bit type's includes rounding
          from FP32 and back; a device's includes what it takes the host to
          start and to notice the end
  algbw   bytes / time, in GB/s (10^9 bytes): what a caller sees
  busbw   algbw x 2(n-1)/n for n ranks: what the slowest link carries, so that
          it can be compared with the hardware and between numbers of ranks
  wrong   results that are not the right sum, on all ranks together; anything
          but 0 ends with 86

Backends: tcp adds in host memory over sockets; nccl between devices; staged
from devices through host memory and tcp. auto takes nccl where all ranks have a
device and an NCCL that fit together, else staged with devices, else tcp, and a
line says why.

Examples. One host, all its devices (a rank each), or the CPU where there are
none:
  muster run --standalone --nproc-per-node 8 -- muster-train bench-collectives
The network between two hosts (the same line on both), sizes from 1 MiB to 4
GiB, as JSON too:
  muster run --nnodes 2 --nproc-per-node 8 --rdzv-id check --rdzv-endpoint host0:29400 -- \
    muster-train bench-collectives --min-bytes 1M --max-bytes 4G --json
A rank needs memory for 2 x --max-bytes, on a 16-bit type 4 x: on the device
where it has one (and with staged as much on the host), else on the host.

Exit codes: 0 every result was right, 2 options, 70 internal, 81 another rank is
gone, 82 ranks disagree, 83 a rank did not answer in time, 85 device, 86 wrong
results, 143 stopped on request.
)";

struct Flags {
  std::string min_bytes = "8";
  std::string max_bytes = "128M";
  std::uint64_t factor = 2;
  int iterations = 20;
  int warmup = 5;
  std::string dtype = "fp32";
  std::string device = "auto";
  std::string backend = "auto";
  bool json = false;
};

void add_options(CLI::App& app, Flags& flags) {
  const auto option = [&app](const char* name, auto& value, const char* what, const char* type) {
    app.add_option(name, value, what)->type_name(type)->take_last()->capture_default_str();
  };
  option("--min-bytes", flags.min_bytes, "the first size; K, M and G are powers of 1024", "SIZE");
  option("--max-bytes", flags.max_bytes, "no size is larger", "SIZE");
  option("--factor", flags.factor, "from one size to the next (2 or more)", "N");
  option("--iterations", flags.iterations, "measured, of each size", "N");
  option("--warmup", flags.warmup, "before them, not measured", "N");
  option("--dtype", flags.dtype, "what travels, as parallel.wire_dtype", "fp32|bf16|fp16");
  option("--device", flags.device, "where the values are", "auto|cpu|cuda");
  option("--backend", flags.backend, "which way they are added", "auto|tcp|staged|nccl");
  app.add_flag("--json", flags.json,
               "standard output gets a JSON line a size and one at the end; the table goes to "
               "standard error");
  app.footer(kHelpEnd);
}

// Empty, or what is wrong.
std::string read_sizes(const Flags& flags, WireType type, SweepOptions& sweep) {
  const auto least = parse_bytes(flags.min_bytes);
  const auto most = parse_bytes(flags.max_bytes);
  const std::string form = ": a number of bytes, with K, M or G for powers of 1024, at most 1024G";
  if (!least) return "--min-bytes " + flags.min_bytes + form;
  if (!most) return "--max-bytes " + flags.max_bytes + form;
  const std::size_t unit = wire_type_bytes(type);
  if (*least < unit) {
    return "--min-bytes " + flags.min_bytes + ": one " + flags.dtype + " has " +
           std::to_string(unit) + " bytes";
  }
  if (*most < *least) {
    return "--max-bytes " + flags.max_bytes + " is less than --min-bytes " + flags.min_bytes;
  }
  if (flags.factor < 2) return "--factor " + std::to_string(flags.factor) + ": 2 or more";
  sweep.counts = sweep_counts(*least, *most, flags.factor, unit);
  return "";
}

std::string read_device(const Flags& flags, cuda::DeviceWish& wish) {
  wish.backend_name = "--backend";
  wish.backend = flags.backend;
  if (flags.device == "cuda") {
    wish.device = DeviceChoice::kCuda;
  } else if (flags.device == "cpu") {
    wish.device = DeviceChoice::kCpu;
  } else if (flags.device != "auto") {
    return "--device " + flags.device + ": auto, cpu or cuda";
  }
  const std::string& backend = flags.backend;
  const bool needs_device = backend == "nccl" || backend == "staged";
  if (!needs_device && backend != "auto" && backend != "tcp") {
    return "--backend " + backend + ": auto, tcp, staged or nccl";
  }
  if (needs_device && flags.device == "cpu") {
    return "--backend " + backend + " needs a CUDA device, and --device is cpu";
  }
  if (backend == "tcp" && flags.device == "cuda") {
    return "--backend tcp adds in host memory, and --device is cuda; --backend staged takes what "
           "is on a device over tcp";
  }
  return "";
}

std::string read(const Flags& flags, BenchOptions& options) {
  const auto type = parse_wire_type(flags.dtype);
  if (!type) return "--dtype " + flags.dtype + ": fp32, bf16 or fp16";
  options.sweep.type = *type;
  std::string wrong = read_sizes(flags, *type, options.sweep);
  if (wrong.empty()) wrong = read_device(flags, options.wish);
  if (!wrong.empty()) return wrong;
  if (flags.iterations < 1) {
    return "--iterations " + std::to_string(flags.iterations) + ": 1 or more";
  }
  if (flags.warmup < 0) return "--warmup " + std::to_string(flags.warmup) + ": 0 or more";
  options.sweep.iterations = flags.iterations;
  options.sweep.warmup = flags.warmup;
  options.json = flags.json;
  options.text = "min-bytes " + flags.min_bytes + ", max-bytes " + flags.max_bytes + ", factor " +
                 std::to_string(flags.factor) + ", iterations " + std::to_string(flags.iterations) +
                 ", warmup " + std::to_string(flags.warmup) + ", dtype " + flags.dtype +
                 ", device " + flags.device + ", backend " + flags.backend;
  return "";
}

}  // namespace

int parse_bench_flags(const std::vector<std::string>& arguments, BenchOptions& options) {
  const std::string name = std::string("muster-train ") + kBenchCommand;
  CLI::App app(
      "Measures and checks how the ranks of a job add values: run it under `muster run` "
      "before a cluster is trusted.",
      name);
  Flags flags;
  add_options(app, flags);
  const int ended = parse_command_line(app, arguments);
  if (ended >= 0) return ended;
  const std::string wrong = read(flags, options);
  if (wrong.empty()) return -1;
  say(wrong + " (see " + name + " --help)");
  return kExitConfiguration;
}

}  // namespace muster::runtime
