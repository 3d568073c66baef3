// SPDX-License-Identifier: Apache-2.0
//
// The real file system, but the k-th changing call ends the process, fails, or is written down.
// What the process did before stays, as after a SIGKILL; the order of syncs is checked by the log.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "worker_runtime/checkpoint/file_system.h"

namespace muster::test {

class FaultyFileSystem : public runtime::FileSystem {
 public:
  // Called before every changing call with its number (from 0) and words; an error is returned
  // to the caller in its place.
  using Hook = std::function<absl::Status(int, const std::string&)>;
  explicit FaultyFileSystem(Hook hook) : hook_(std::move(hook)) {}

  absl::StatusOr<std::unique_ptr<runtime::WritableFile>> create(const std::string& path) override {
    absl::Status status = before("create " + path);
    if (!status.ok()) return status;
    auto file = runtime::posix_file_system().create(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*this, path, *std::move(file));
  }
  absl::Status make_directories(const std::string& path) override {
    const absl::Status status = before("mkdir " + path);
    return status.ok() ? runtime::posix_file_system().make_directories(path) : status;
  }
  absl::Status rename(const std::string& from, const std::string& to) override {
    const absl::Status status = before("rename " + from + " " + to);
    return status.ok() ? runtime::posix_file_system().rename(from, to) : status;
  }
  absl::Status sync_directory(const std::string& path) override {
    const absl::Status status = before("syncdir " + path);
    return status.ok() ? runtime::posix_file_system().sync_directory(path) : status;
  }
  absl::Status remove_file(const std::string& path) override {
    const absl::Status status = before("unlink " + path);
    return status.ok() ? runtime::posix_file_system().remove_file(path) : status;
  }
  absl::Status remove_directory(const std::string& path) override {
    const absl::Status status = before("rmdir " + path);
    return status.ok() ? runtime::posix_file_system().remove_directory(path) : status;
  }
  absl::StatusOr<std::vector<std::string>> list(const std::string& path) override {
    return runtime::posix_file_system().list(path);
  }
  absl::StatusOr<std::vector<std::byte>> read(const std::string& path) override {
    return runtime::posix_file_system().read(path);
  }

  int calls() const { return calls_; }

 private:
  class File : public runtime::WritableFile {
   public:
    File(FaultyFileSystem& owner, std::string path, std::unique_ptr<WritableFile> real)
        : owner_(owner), path_(std::move(path)), real_(std::move(real)) {}
    absl::Status write(std::span<const std::byte> bytes) override {
      const absl::Status status = owner_.before("write " + path_);
      if (!status.ok()) {
        // A failed write may leave a part.
        real_->write(bytes.first(bytes.size() / 2)).IgnoreError();
        return status;
      }
      return real_->write(bytes);
    }
    absl::Status sync() override {
      const absl::Status status = owner_.before("sync " + path_);
      return status.ok() ? real_->sync() : status;
    }
    absl::Status close() override {
      const absl::Status status = owner_.before("close " + path_);
      return status.ok() ? real_->close() : status;
    }

   private:
    FaultyFileSystem& owner_;
    std::string path_;
    std::unique_ptr<WritableFile> real_;
  };

  absl::Status before(const std::string& words) { return hook_(calls_++, words); }

  Hook hook_;
  int calls_ = 0;
};

}  // namespace muster::test
