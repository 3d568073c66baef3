// SPDX-License-Identifier: Apache-2.0
//
// What this device reaches at best, and how near to it the products and every kernel come at the
// sizes of GPT-2's 124 million parameters with 65,536 tokens.
#include <string>

#include "tests/gpu/stopwatch.h"
#include "tests/gpu/trial_run.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

const TrialSize kLarge{.name = "GPT-2",
                       .batch = 64,
                       .time = 1024,
                       .width = 768,
                       .heads = 12,
                       .vocabulary = 50257,
                       .plain_head = 64,
                       .timed = true};
const TrialSize kSmall{.name = "small",
                       .batch = 1,
                       .time = 40,
                       .width = 72,
                       .heads = 2,
                       .vocabulary = 97,
                       .plain_head = 36};

struct Ceilings {
  double copy = 0;     // bytes a second
  double product = 0;  // operations a second
};

// One product of the model.
struct Shape {
  const char* name;
  DeviceProduct product;
};

std::vector<Shape> shapes_of(const TrialSize& s) {
  const std::size_t rows = s.rows();
  const std::size_t c = s.width;
  const std::size_t head = s.timed ? (std::size_t{1} << 26U) / s.vocabulary : rows;
  const auto forward = [&](const char* name, std::size_t in, std::size_t out) {
    return Shape{name, {.m = rows, .n = out, .k = in, .in = Number::kBf16, .out = Number::kBf16}};
  };
  const auto of_input = [&](const char* name, std::size_t in, std::size_t out) {
    return Shape{name,
                 {.transpose_b = true,
                  .m = rows,
                  .n = in,
                  .k = out,
                  .in = Number::kBf16,
                  .out = Number::kBf16}};
  };
  const auto of_weight = [&](const char* name, std::size_t in, std::size_t out) {
    return Shape{name,
                 {.transpose_a = true,
                  .m = in,
                  .n = out,
                  .k = rows,
                  .in = Number::kBf16,
                  .out = Number::kF32}};
  };
  return {forward("product, attention in", c, 3 * c),
          forward("product, attention out", c, c),
          forward("product, MLP in", c, 4 * c),
          forward("product, MLP out", 4 * c, c),
          of_input("product, gradient of attention in's input", c, 3 * c),
          of_input("product, gradient of MLP in's input", c, 4 * c),
          of_input("product, gradient of MLP out's input", 4 * c, c),
          of_weight("product, gradient of attention in's weight", c, 3 * c),
          of_weight("product, gradient of MLP in's weight", c, 4 * c),
          of_weight("product, gradient of MLP out's weight", 4 * c, c),
          {"product, logits",
           {.transpose_b = true,
            .m = head,
            .n = s.vocabulary,
            .k = c,
            .in = Number::kBf16,
            .out = Number::kF32,
            .ldc = (s.vocabulary + 63) / 64 * 64}}};
}

absl::StatusOr<double> time_product(const Opened& opened, Stream& stream, const Stopwatch& watch,
                                    DeviceProduct product) {
  const std::size_t width = product.ldc != 0 ? product.ldc : product.n;
  auto a = random_matrix(*opened.device, stream, product.in, product.m * product.k);
  if (!a.ok()) return a.status();
  auto b = random_matrix(*opened.device, stream, product.in, product.k * product.n);
  if (!b.ok()) return b.status();
  auto d = opened.device->allocate(product.m * width * 4);
  if (!d.ok()) return d.status();
  product.a = a->data();
  product.b = b->data();
  product.d = d->data();
  auto products = DeviceProducts::create(opened.blas, opened.device);
  if (!products.ok()) return products.status();
  return watch.seconds(stream, [&] { return (*products)->run(stream, product); });
}

absl::Status time_products(const Context& context, const Opened& opened, Stream& stream,
                           const Stopwatch& watch, const Ceilings& ceilings) {
  for (const auto& [name, product] : shapes_of(context.on_fakes ? kSmall : kLarge)) {
    const auto time = time_product(opened, stream, watch, product);
    if (!time.ok()) return time.status();
    const double operations = 2 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                              static_cast<double>(product.k);
    context.report->figure(name, operations / *time / 1e12, "TFLOP/s", ceilings.product / 1e12);
  }
  return absl::OkStatus();
}

absl::Status time_kernel(const Context& context, const Opened& opened, Stream& stream,
                         const Stopwatch& watch, const Ceilings& ceilings, const Trial& trial) {
  const auto prepared = DeviceTrial::prepare(trial, *opened.device, stream);
  if (!prepared.ok()) return prepared.status();
  const auto time = watch.seconds(stream, [&] { return prepared->launch(stream); });
  if (!time.ok()) return time.status();
  const std::string took = std::to_string(*time * 1e3) + " ms";
  if (trial.operations > 0) {
    context.report->figure(trial.kernel, trial.operations / *time / 1e12, "TFLOP/s",
                           ceilings.product / 1e12, took);
  } else {
    context.report->figure(trial.kernel, trial.bytes / *time / 1e9, "GB/s", ceilings.copy / 1e9,
                           took);
  }
  return absl::OkStatus();
}

absl::StatusOr<Ceilings> measure_ceilings(const Context& context, const Opened& opened,
                                          Stream& stream, bool tell) {
  const auto copy = measure_copy(context, opened, stream);
  if (!copy.ok()) return copy.status();
  const auto bf16 = measure_product(context, opened, stream, Number::kBf16);
  if (!bf16.ok()) return bf16.status();
  const auto f16 = measure_product(context, opened, stream, Number::kF16);
  if (!f16.ok()) return f16.status();
  if (tell) {
    context.report->figure("copy on the device", *copy / 1e9, "GB/s", 0, "read and written");
    context.report->figure("product of 8192, bf16", *bf16 / 1e12, "TFLOP/s", kNominalTeraflops);
    context.report->figure("product of 8192, fp16", *f16 / 1e12, "TFLOP/s", kNominalTeraflops);
  }
  return Ceilings{*copy, *bf16};
}

}  // namespace

absl::Status measure_ceilings_and_kernels(const Context& context) {
  auto opened = open_device(context);
  if (!opened.ok()) return opened.status();
  auto stream = opened->device->make_stream();
  if (!stream.ok()) return stream.status();
  const auto watch = Stopwatch::make(*opened->device);
  if (!watch.ok()) return watch.status();
  bool skipping = !context.after.empty();
  const auto ceilings = measure_ceilings(context, *opened, **stream, !skipping);
  if (!ceilings.ok()) return ceilings.status();
  if (!skipping) {
    absl::Status status = time_products(context, *opened, **stream, *watch, *ceilings);
    if (!status.ok()) return status;
  }
  for (const KernelCase& one : all_cases()) {
    if (skipping) {
      skipping = one.kernel != context.after;
      continue;
    }
    context.report->at(one.kernel);
    const Trial trial = one.make(context.on_fakes ? kSmall : kLarge);
    const absl::Status status = time_kernel(context, *opened, **stream, *watch, *ceilings, trial);
    if (!status.ok()) {
      context.report->check(one.kernel, false, status.ToString());
      std::quick_exit(3);
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
