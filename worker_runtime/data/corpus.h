// SPDX-License-Identifier: Apache-2.0
//
// The text that a run learns from, as one string of bytes in memory. A byte is a token.
//
// A directory is read recursively, its files joined without separators in bytewise order of
// their path below it, so that every host reads the same. Left out and counted: links to files
// that are read anyway, files with NUL bytes (Debian's fortunes has one of each beside every
// text), and whatever is no file, by name. What cannot be read is an error: silently training on
// less would make ranks differ.
//
// Thread rule: a Corpus is a value; read_corpus blocks on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::runtime {

struct Corpus {
  std::string path;  // as given
  std::vector<std::uint8_t> bytes;
  std::uint64_t digest = 0;         // digest64 of bytes
  std::size_t files = 0;            // read
  std::size_t binary_files = 0;     // skipped: NUL bytes
  std::size_t links = 0;            // skipped: lead to a file inside the directory
  std::vector<std::string> others;  // skipped: "PATH (a FIFO)", "PATH (a broken link)", …
};

// `path` names a file or a directory, relative to the working directory. Errors name the path:
// kNotFound; kPermissionDenied; kInvalidArgument (empty, no text in it, neither file nor
// directory, a single file with NUL bytes); kInternal (reading failed).
absl::StatusOr<Corpus> read_corpus(const std::string& path);

// One line for people: what was read and what was left out.
std::string describe(const Corpus& corpus);

}  // namespace muster::runtime
