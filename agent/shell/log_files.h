// SPDX-License-Identifier: Apache-2.0
//
// The log files of a node's workers: one writer for all, and the words about trouble with them.
//
// However many files have however much trouble, people read at most four lines: the first file
// that cannot be written, the first that takes bytes again, the first that cannot be put away, and
// at the end what is missing in all.
//
// Thread rule: io thread only. Held by a shared_ptr.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/shell/log_rules.h"
#include "agent/shell/output_writer.h"

namespace muster::agent {

class LogFiles : public std::enable_shared_from_this<LogFiles> {
 public:
  // `say` takes one line. It is called from open functions, and later by the loop.
  LogFiles(boost::asio::io_context& io, LogRotation rotation,
           std::function<void(const std::string&)> say);

  // A worker's own file, made where it is missing; null where it cannot be opened. Whoever feeds
  // it shows what it cannot take, and counts what it never got in unlogged().
  std::shared_ptr<OutputTarget> open(const std::string& path);
  // A file that streams share, for picked lines; null where it cannot be opened. It is never
  // begun anew: other nodes may append to it too.
  std::shared_ptr<OutputTarget> open_shared(const std::string& path);

  const std::shared_ptr<OutputWriter>& writer() const { return writer_; }
  // What workers' own files did not take.
  const std::shared_ptr<OutputDrops>& unlogged() const { return unlogged_; }

  // In words, what is in no file; empty: nothing.
  std::string missing() const;

 private:
  std::shared_ptr<OutputTarget> make(const std::string& path, bool shared);
  void cannot_write(const std::string& path, int error);
  void say_once(bool& told, const std::string& line);

  LogRotation rotation_;
  std::function<void(const std::string&)> say_;
  std::shared_ptr<OutputWriter> writer_;
  std::shared_ptr<OutputDrops> unlogged_ = std::make_shared<OutputDrops>();
  std::shared_ptr<OutputDrops> unpicked_ = std::make_shared<OutputDrops>();
  std::map<std::string, std::weak_ptr<OutputTarget>> shared_;  // by path
  bool failure_told_ = false;
  bool return_told_ = false;
  bool rotation_told_ = false;
};

}  // namespace muster::agent
