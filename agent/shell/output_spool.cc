// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/output_spool.h"

#include <algorithm>
#include <array>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace muster::agent {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;  // read back from the file at once
// Made free at once, so that a console that stays blocked costs little.
constexpr std::uint64_t kRoomShare = 16;
// A ring below this is not worth having; no chunk is as large.
constexpr std::uint64_t kLeastRoom = 1U << 20;

}  // namespace

void OutputSpool::push(OutputChunk chunk) {
  const bool fits = front_bytes_ + chunk.bytes.size() <= limits_.memory;
  if (limits_.folder.empty() || (fits && head_ == tail_)) {
    front_bytes_ += chunk.bytes.size();
    front_.push_back(std::move(chunk));
    return;
  }
  push_to_file(std::move(chunk));
}

OutputChunk OutputSpool::pop() {
  OutputChunk chunk;
  // The gap is in front of the file, or of memory where there is none.
  const bool may_follow_gap = front_.empty() || room_ == 0;
  if (!front_.empty()) {
    chunk = std::move(front_.front());
    front_.pop_front();
    front_bytes_ -= chunk.bytes.size();
  } else {
    const Run& run = runs_.front();
    chunk.target = run.target;
    chunk.bytes.resize(std::min<std::uint64_t>(run.bytes, kPieceBytes));
    const std::size_t count = read_at(head_, chunk.bytes.data(), chunk.bytes.size());
    dropped_ += chunk.bytes.size() - count;  // a broken disk; nothing better to do
    forget(chunk.bytes.size());
    chunk.bytes.resize(count);
  }
  if (after_gap_ && may_follow_gap) {
    after_gap_ = false;
    if (!at_line_start_) chunk.bytes.insert(0, 1, '\n');
  }
  if (!chunk.bytes.empty()) at_line_start_ = chunk.bytes.back() == '\n';
  return chunk;
}

bool OutputSpool::nearly_full() const {
  if (limits_.folder.empty() || head_ == tail_) return false;
  return tail_ - head_ > room_ - room_ / kRoomShare;
}

void OutputSpool::push_to_file(OutputChunk chunk) {
  if (file_.valid()) make_room(chunk.bytes.size());
  if (!file_.valid()) open_file();
  if (room_ < chunk.bytes.size()) {
    front_bytes_ += chunk.bytes.size();
    front_.push_back(std::move(chunk));
    return drop_from_memory();
  }
  const std::size_t count = write_at_tail(chunk.bytes);
  const bool wrapped = tail_ + count > room_;
  if (count > 0) {
    tail_ += count;
    if (runs_.empty() || runs_.back().target != chunk.target) runs_.push_back({chunk.target, 0});
    runs_.back().bytes += count;
  }
  if (count == chunk.bytes.size()) return;
  chunk.bytes.erase(0, count);
  if (!wrapped && tail_ >= kLeastRoom) {
    // The disk is full before the ring is: what is there must do.
    room_ = tail_;
    return push_to_file(std::move(chunk));
  }
  dropped_ += chunk.bytes.size();
  after_gap_ = true;
}

void OutputSpool::open_file() {
  std::string path = limits_.folder + "/console-XXXXXX";
  file_.reset(::mkostemp(path.data(), O_CLOEXEC));
  room_ = 0;
  if (!file_.valid()) return;
  ::unlink(path.c_str());
  struct statvfs space {};
  if (::fstatvfs(file_.get(), &space) == 0) {
    room_ = std::min(limits_.file, static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize / 2);
  }
  if (room_ >= kLeastRoom) return;
  room_ = 0;
  file_.reset();
}

// Without a file memory is all there is: the oldest goes.
void OutputSpool::drop_from_memory() {
  while (front_bytes_ > limits_.memory && front_.size() > 1) {
    front_bytes_ -= front_.front().bytes.size();
    dropped_ += front_.front().bytes.size();
    front_.pop_front();
    after_gap_ = true;
  }
}

void OutputSpool::make_room(std::uint64_t bytes) {
  if (tail_ - head_ + bytes <= room_) return;
  const std::uint64_t wanted = std::max(bytes, room_ / kRoomShare);
  const std::uint64_t gone = std::min(wanted, tail_ - head_);
  forget(gone);
  // Whole lines go: what is left begins with one.
  const std::size_t rest = find_line_end();
  forget(rest);
  dropped_ += gone + rest;
  after_gap_ = true;
}

// Bytes from the head to behind the next newline, not beyond one piece.
std::size_t OutputSpool::find_line_end() {
  std::string piece(std::min<std::uint64_t>(kPieceBytes, tail_ - head_), '\0');
  piece.resize(read_at(head_, piece.data(), piece.size()));
  const std::size_t end = piece.find('\n');
  return end == std::string::npos ? piece.size() : end + 1;
}

void OutputSpool::forget(std::uint64_t bytes) {
  head_ += bytes;
  while (bytes > 0) {
    Run& run = runs_.front();
    const std::uint64_t part = std::min(bytes, run.bytes);
    run.bytes -= part;
    bytes -= part;
    if (run.bytes == 0) runs_.pop_front();
  }
  if (head_ != tail_) return;
  head_ = tail_ = 0;
  file_.reset();  // gives the space back
}

// The position of `tail_` wraps at room_. Returns what could be written.
std::size_t OutputSpool::write_at_tail(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::uint64_t place = (tail_ + done) % room_;
    const std::size_t part = std::min<std::uint64_t>(bytes.size() - done, room_ - place);
    const ssize_t count =
        ::pwrite(file_.get(), bytes.data() + done, part, static_cast<off_t>(place));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::size_t OutputSpool::read_at(std::uint64_t position, char* into, std::size_t count) const {
  std::size_t done = 0;
  while (done < count) {
    const std::uint64_t place = (position + done) % room_;
    const std::size_t part = std::min<std::uint64_t>(count - done, room_ - place);
    const ssize_t got = ::pread(file_.get(), into + done, part, static_cast<off_t>(place));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace muster::agent
