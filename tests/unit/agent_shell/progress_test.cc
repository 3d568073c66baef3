// SPDX-License-Identifier: Apache-2.0
//
// Both halves of the progress file: the agent's reading against the worker's header, written in
// real processes (a fault word acts on the process that reports).
#include "worker_runtime/progress.h"

#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "agent/shell/progress_file.h"
#include "agent/shell/progress_sampler.h"
#include "proto/base/progress_layout.h"
#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

using muster::testing::TempDir;

namespace layout = muster::progress;

static_assert(layout::kMagic == MUSTER_PROGRESS_MAGIC);
static_assert(layout::kFileBytes == MUSTER_PROGRESS_FILE_BYTES);
static_assert(layout::kMagicOffset == offsetof(muster_progress, magic));
static_assert(layout::kStepOffset == offsetof(muster_progress, step));
static_assert(layout::kUnixNsOffset == offsetof(muster_progress, unix_ns));
static_assert(layout::kLossOffset == offsetof(muster_progress, loss));
static_assert(layout::kSamplesOffset == offsetof(muster_progress, samples));
static_assert(layout::kCheckpointStepOffset == offsetof(muster_progress, checkpoint_step));
static_assert(layout::kFaultWordOffset == offsetof(muster_progress, fault_word));
static_assert(layout::kFaultArgumentOffset == offsetof(muster_progress, fault_argument));
static_assert(layout::kStateOffset == offsetof(muster_progress, state));
static_assert(layout::kStateBytes == sizeof(muster_progress{}.state));
static_assert(static_cast<int>(layout::WordAction::kKill) == MUSTER_FAULT_KILL);
static_assert(static_cast<int>(layout::WordAction::kStop) == MUSTER_FAULT_STOP);
static_assert(static_cast<int>(layout::WordAction::kExit) == MUSTER_FAULT_EXIT);
static_assert(layout::kWordStepMask == MUSTER_FAULT_STEP_MASK);

// Runs `body` in a child that finds `path` in its environment; returns waitpid's status.
int in_child(const std::string& path, const std::function<void()>& body, int options = 0) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("MUSTER_PROGRESS_FILE", path.c_str(), 1);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, options);
  if (WIFSTOPPED(status)) {
    const int stopped = status;
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return stopped;
  }
  return status;
}

ProgressFile made(const std::string& path, std::uint64_t word = 0, std::uint64_t argument = 0) {
  auto file = ProgressFile::create(path, word, argument);
  REQUIRE(file.ok());
  return *std::move(file);
}

// A worker without the variable; the header's map is of this process and never made.
TEST_CASE("reporting without Muster does nothing") {
  REQUIRE(::getenv("MUSTER_PROGRESS_FILE") == nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(muster_report(1, 0.5, 2, 3, "x"));
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("what a worker reports is what the agent reads") {
  const TempDir dir;
  const std::string path = dir.path() + "/progress";
  const ProgressFile file = made(path);
  CHECK_FALSE(file.read());
  CHECK_FALSE(ProgressFile::create(path, 0, 0).ok());  // never somebody else's
  in_child(path, [] {
    muster_report(1, 0.5, 10, 0, "warming up");
    if (muster_report(7, 0.25, 70, 5, nullptr) != 1) ::_exit(1);
  });
  const auto reading = file.read();
  REQUIRE(reading);
  CHECK(reading->step == 7);
  CHECK(reading->checkpoint_step == 5);
  CHECK_FALSE(reading->word_taken);
  muster_progress raw{};
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::read(descriptor, &raw, sizeof(raw)) == static_cast<ssize_t>(sizeof(raw)));
  ::close(descriptor);
  CHECK(raw.loss == 0.25);
  CHECK(raw.samples == 70);
  CHECK(raw.unix_ns > 0);
  CHECK(std::string(raw.state) == "warming up");
}

TEST_CASE("a fault word acts at its step and is gone before the step shows") {
  const TempDir dir;
  using layout::fault_word;
  using layout::WordAction;
  SECTION("kill") {
    const ProgressFile file = made(dir.path() + "/p", fault_word(WordAction::kKill, 3), SIGKILL);
    const int status = in_child(dir.path() + "/p", [] {
      for (std::uint64_t step = 1; step < 10; ++step)
        muster_report(step, 0, 0, 0, nullptr);
    });
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
    CHECK(file.read()->step == 3);
    CHECK(file.read()->word_taken);
  }
  SECTION("exit") {
    const ProgressFile file = made(dir.path() + "/p", fault_word(WordAction::kExit, 2), 9);
    const int status = in_child(dir.path() + "/p", [] {
      // Step 2 is jumped over, as after a resume: the first one beyond it counts.
      for (std::uint64_t step = 1; step < 10; step += 3)
        muster_report(step, 0, 0, 0, nullptr);
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 9);
    CHECK(file.read()->step == 4);
  }
  SECTION("stop") {
    const ProgressFile file = made(dir.path() + "/p", fault_word(WordAction::kStop, 1), 0);
    const int status = in_child(
        dir.path() + "/p", [] { muster_report(1, 0, 0, 0, nullptr); }, WUNTRACED);
    CHECK(WIFSTOPPED(status));
    CHECK(file.read()->word_taken);
  }
}

TEST_CASE("the Python module writes the same") {
  const TempDir dir;
  const std::string path = dir.path() + "/progress";
  const ProgressFile file = made(path, layout::fault_word(layout::WordAction::kExit, 5), 3);
  const int status = in_child(path, [] {
    ::setenv("PYTHONPATH", MUSTER_SOURCE_DIR "/worker_runtime", 1);
    ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    ::execlp("python3", "python3", "-c",
             "from progress import report\n"
             "for step in range(10):\n"
             "    assert report(step, loss=0.5, samples=step, checkpoint_step=2, state='run')\n",
             nullptr);
    ::_exit(127);
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  const auto reading = file.read();
  REQUIRE(reading);
  CHECK(reading->step == 5);
  CHECK(reading->checkpoint_step == 2);
  CHECK(reading->word_taken);
}

TEST_CASE("a worker that spoils its file does no harm to the agent") {
  const TempDir dir;
  const std::string path = dir.path() + "/progress";
  const ProgressFile file = made(path);
  in_child(path, [] { muster_report(1, 0, 0, 0, nullptr); });
  REQUIRE(file.read());
  REQUIRE(::truncate(path.c_str(), 0) == 0);
  CHECK_FALSE(file.read());
  REQUIRE(::unlink(path.c_str()) == 0);
  CHECK_FALSE(file.read());
  CHECK_FALSE(ProgressFile::create("/proc/nowhere/p", 0, 0).ok());
}

TEST_CASE("the age of a step counts from when it was first seen") {
  const TempDir dir;
  ProgressSampler sampler;
  sampler.add(0, 4, made(dir.path() + "/a"));
  sampler.add(1, 2, made(dir.path() + "/b"));
  CHECK(sampler.sample(Instant{1s}).empty());
  in_child(dir.path() + "/a", [] { muster_report(10, 0, 0, 0, nullptr); });
  auto seen = sampler.sample(Instant{2s});
  REQUIRE(seen.size() == 1);
  CHECK(seen[0] == RankProgress{4, 10, std::nullopt, 0s});
  in_child(dir.path() + "/b", [] { muster_report(11, 0, 0, 8, nullptr); });
  seen = sampler.sample(Instant{5s});
  REQUIRE(seen.size() == 2);
  CHECK(seen[0] == RankProgress{2, 11, 8, 0s});
  CHECK(seen[1] == RankProgress{4, 10, std::nullopt, 3s});
  CHECK(sampler.read(0, Instant{6s})->step == 10);
  CHECK_FALSE(sampler.read(9, Instant{6s}));
  sampler.remove(0);
  CHECK(sampler.sample(Instant{7s}).size() == 1);
}

}  // namespace
}  // namespace muster::agent
