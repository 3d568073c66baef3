// SPDX-License-Identifier: Apache-2.0
//
// Everything before the first step. Each rank reads the corpus; rank 0 raises the fence and
// chooses the checkpoint; what stands in it is compared with what this run was told; the ranks
// compare with each other; tensors come from rank 0 or from the seed.
#include <utility>

#include "worker_runtime/checkpoint/step_name.h"
#include "worker_runtime/data/order.h"
#include "worker_runtime/train/agreement.h"
#include "worker_runtime/train/training_run.h"

namespace muster::runtime {

absl::Status TrainingRun::start() {
  absl::Status status = read_data();
  if (!status.ok()) return status;
  std::optional<LoadedCheckpoint> loaded;
  if (is_first()) {
    overseer_.storage_begins();
    status = open_store(loaded);
    overseer_.storage_ends();
    if (!status.ok()) return status;
  } else {
    overseer_.awaits_storage();
  }
  const auto manifest = broadcast_manifest(group_, loaded ? &loaded->manifest : nullptr);
  if (!manifest.ok()) return peer_failure(manifest.status());
  status = settle_batch(*manifest);
  if (!status.ok()) return status;
  bool probed = false;
  status = agree(probed);
  if (store_ && probed) store_->remove_probe();
  if (!status.ok()) return status;
  if (*manifest) status = compare(**manifest);
  if (!status.ok()) return status;
  TrainTensors tensors;
  if (loaded) {
    note("resuming from " + loaded->path + " (run " + loaded->manifest.run + ", generation " +
         std::to_string(loaded->manifest.generation) + ")");
    tensors = std::move(loaded->tensors);
  }
  status = fill_tensors(*manifest, tensors);
  return status.ok() ? make_engine(std::move(tensors), *manifest) : status;
}

absl::Status TrainingRun::read_data() {
  auto corpus = read_corpus(config_.data_path);
  if (!corpus.ok()) return fail(kExitConfiguration, std::string(corpus.status().message()));
  const auto shared = std::make_shared<const Corpus>(*std::move(corpus));
  auto dataset = Dataset::make(shared, {.n_ctx = config_.model.n_ctx,
                                        .vocab_size = config_.model.vocab_size,
                                        .validation = config_.validation,
                                        .seed = config_.seed});
  if (!dataset.ok()) return fail(kExitConfiguration, std::string(dataset.status().message()));
  dataset_ = *std::move(dataset);
  return absl::OkStatus();
}

absl::Status TrainingRun::open_store(std::optional<LoadedCheckpoint>& loaded) {
  const auto say = [this](const std::string& text) { note(text); };
  if (!config_.checkpoint.dir.empty()) {
    CheckpointStore::Options options;
    options.directory = config_.checkpoint.dir;
    options.keep = config_.checkpoint.keep;
    options.fence = {runtime_.run, group_.generation()};
    options.nonce = runtime_.nonce;
    store_.emplace(*runtime_.files, options, say);
    const absl::Status opened = store_->open();
    if (!opened.ok()) return storage_failure(opened);
  }
  auto chosen = choose_checkpoint(store_ ? &*store_ : nullptr, *runtime_.files, runtime_.resume,
                                  runtime_.run, layout_, say);
  if (!chosen.ok()) return storage_failure(chosen.status());
  loaded = *std::move(chosen);
  return absl::OkStatus();
}

absl::Status TrainingRun::settle_batch(const std::optional<Manifest>& manifest) {
  const std::optional<Batch> stored = manifest ? batch_of(manifest->config) : std::nullopt;
  const auto batch = resolve_batch(config_.batch, group_.size(), group_.generation() == 0, stored);
  if (!batch.ok()) return fail(kExitConfiguration, std::string(batch.status().message()));
  batch_ = *batch;
  config_text_ = config_json(config_, batch_);
  config_digest_ = trajectory_digest(config_text_);
  return absl::OkStatus();
}

// The probe tells whether the others see rank 0's checkpoint directory. Nobody needs it to load
// at stage 0, but whoever restarts rank 0 elsewhere does.
absl::Status TrainingRun::agree(bool& probed) {
  std::string probe;
  if (store_ && group_.size() > 1) {
    const absl::Status written = store_->write_probe();
    if (!written.ok()) return storage_failure(written);
    probed = true;
    probe = runtime_.nonce;
  }
  std::uint64_t length = probe.size();
  absl::Status status = broadcast(group_, 0, std::as_writable_bytes(std::span(&length, 1)));
  probe.resize(length);
  if (status.ok() && length > 0) {
    status = broadcast(group_, 0, std::as_writable_bytes(std::span(probe)));
  }
  if (!status.ok()) return peer_failure(status);
  StartFacts mine{
      config_text_, config_.data_path, dataset_->corpus().bytes.size(), dataset_->corpus().digest,
      layout_.hash, runtime_.build};
  mine.sees_probe =
      length > 0 && runtime_.files->read(config_.checkpoint.dir + "/PROBE-" + probe).ok();
  const auto facts = exchange_facts(group_, mine);
  if (!facts.ok()) return peer_failure(facts.status());
  status = check_agreement(*facts);
  if (!status.ok()) return fail(kExitConfiguration, std::string(status.message()));
  if (is_first()) {
    note("corpus " + config_.data_path + ": " + describe(dataset_->corpus()));
    for (const std::string& text : agreement_notes(*facts, length > 0))
      note(text);
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::compare(const Manifest& manifest) {
  const Corpus& corpus = dataset_->corpus();
  const auto notes =
      compare_with(manifest, {config_text_, corpus.bytes.size(), corpus.digest, group_.size(),
                              config_.parallel.deterministic, runtime_.build});
  if (!notes.ok()) return storage_failure(notes.status());
  if (is_first()) {
    for (const std::string& text : *notes)
      note(text);
  }
  counters_ = manifest.counters;
  if (same_scaler(manifest.config, config_text_)) {
    scaler_.restore(counters_);
  } else {
    scaler_.store(counters_);  // other rules: the scale starts anew
  }
  if (!config_.checkpoint.dir.empty()) checkpoint_step_ = counters_.step;
  return absl::OkStatus();
}

absl::Status TrainingRun::fill_tensors(const std::optional<Manifest>& manifest,
                                       TrainTensors& tensors) {
  for (std::vector<float>* stream : {&tensors.master, &tensors.m, &tensors.v}) {
    stream->resize(layout_.size, 0.0F);
  }
  if (!manifest) {
    initialise(config_.model, layout_, config_.seed, tensors.master);
    return absl::OkStatus();
  }
  const absl::Status status = broadcast_tensors(group_, tensors);
  return status.ok() ? status : peer_failure(status);
}

absl::Status TrainingRun::make_engine(TrainTensors tensors,
                                      const std::optional<Manifest>& manifest) {
  EngineRequest request{
      config_.model, config_.precision, batch_.micro, layout_, config_.parallel, group_, {}};
  if (runtime_.after_backward) {
    request.after_backward = [this](std::span<float> gradient) {
      runtime_.after_backward(counters_.step + 1, gradient);
    };
  }
  request.note = [this](const std::string& text) { note(text); };
  auto engine = runtime_.make_engine(request);
  if (absl::IsInvalidArgument(engine.status())) {
    return fail(kExitConfiguration, std::string(engine.status().message()));
  }
  if (!engine.ok()) return engine_failure(engine.status());
  engine_ = *std::move(engine);
  const absl::Status alike = compare_products(manifest);
  if (!alike.ok()) return alike;
  const absl::Status loaded = engine_->load(std::move(tensors));
  return loaded.ok() ? loaded : engine_failure(loaded);
}

// Ranks that multiply differently are refused; a checkpoint whose maker did is only told of.
absl::Status TrainingRun::compare_products(const std::optional<Manifest>& manifest) {
  const std::string mine = engine_->products();
  const absl::Status alike = runtime::compare_products(group_, mine);
  if (!alike.ok()) return engine_failure(alike);
  const std::string then = manifest ? manifest->products : "";
  if (is_first() && !mine.empty() && !then.empty() && mine != then) {
    note("the checkpoint's maker multiplied by other algorithms (" + then + " then, " + mine +
         " now): the last bits may differ");
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime
