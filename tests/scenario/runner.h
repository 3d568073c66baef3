// SPDX-License-Identifier: Apache-2.0
//
// Scenarios: a text file of events with the transcript of what the machine did underneath each.
// The transcript is golden: the runner plays the events again and compares, line by line.
//
//   # A comment; blank lines are kept too.
//   join a slots=2                   an event: command, words, key=value ("…" quotes a value)
//       send a: join_accepted …      its transcript, indented by four
//   +30s tick                        the clock moves by 30s first, then the command is carried out
//   +5s                              only time passes
//       [36s] send a: waiting …      what happened on the way, with the instant at which it did
//   beat a
//       (nothing)                    the machine did nothing
//
// Time starts at 0 and moves only by `+DURATION`; on the way, tick() is called at every deadline
// that the adapter names, as a real host would. `scenario_test --rewrite` writes the transcripts
// anew; the difference is then reviewed.
//
// A file `<prefix>_*.txt` is played by the adapter registered under <prefix>. An adapter turns
// commands into events of its machine and actions into lines. Single-threaded throughout.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/time.h"

namespace muster::scenario {

// One event line, taken apart. Every argument that no one takes is reported as unknown, so a
// misspelt key cannot pass unseen. A value that does not parse is reported too.
class Command {
 public:
  // Reads `command word… key=value…`. On a syntax error error() says what is wrong.
  explicit Command(std::string_view text);

  const std::string& name() const { return name_; }

  // The next word that is not key=value, in order; nullopt when there is none left.
  std::optional<std::string> word();
  // As word(), but its absence is an error that names `what`.
  std::string need_word(const std::string& what);

  // Value of key=…; nullopt (or the fallback) when it is not given.
  std::optional<std::string> text(const std::string& key);
  std::string text_or(const std::string& key, const std::string& fallback);
  std::optional<std::int64_t> number(const std::string& key);
  std::int64_t number_or(const std::string& key, std::int64_t fallback);
  std::optional<Duration> duration(const std::string& key);
  // yes/no, true/false, 1/0.
  bool flag_or(const std::string& key, bool fallback);
  // "1,2,3"; empty when not given.
  std::vector<std::int64_t> numbers(const std::string& key);

  // For the adapter: the command makes no sense here. The first complaint is kept.
  void complain(const std::string& what);
  // The first complaint, or the name of an argument that was not taken.
  std::optional<std::string> error() const;

 private:
  std::string name_;
  std::vector<std::string> words_;
  std::size_t next_word_ = 0;
  std::map<std::string, std::string> named_;
  std::set<std::string> taken_;
  std::optional<std::string> complaint_;
};

using Transcript = std::vector<std::string>;

class Adapter {
 public:
  virtual ~Adapter() = default;
  // Carries out one command at `now`. An unknown command or argument: command.complain(…).
  virtual Transcript run(Command& command, Instant now) = 0;
  // Earliest instant at which tick() wants to be called; nullopt: none.
  virtual std::optional<Instant> next_deadline() const = 0;
  virtual Transcript tick(Instant now) = 0;
};

using AdapterFactory = std::function<std::unique_ptr<Adapter>()>;

// Called from a static initialiser of the adapter's file:
//   const bool registered = scenario::register_adapter("agent", [] { return …; });
bool register_adapter(const std::string& prefix, AdapterFactory factory);

struct Problem {
  int line = 0;  // in the file, from 1
  std::string what;
};

struct Result {
  std::vector<Problem> problems;
  std::string rewritten;  // the file with transcripts as they came out
  int events = 0;
};

// Plays one scenario. Differences are problems; so are bad event lines and a file without events.
Result play(std::string_view text, Adapter& adapter);

// Plays every *.txt of `folder`, or only those whose name contains `filter`. Writes one line a
// file to stdout, problems as "file:line: …". Returns 0 when all agree; 1 otherwise, also when
// there is nothing to play. With `rewrite`, files that differ are written anew.
int play_folder(const std::string& folder, const std::string& filter, bool rewrite);

}  // namespace muster::scenario
