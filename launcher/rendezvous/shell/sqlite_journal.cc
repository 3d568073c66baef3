// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/sqlite_journal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "launcher/rendezvous/shell/journal_mark.h"
#include "launcher/rendezvous/shell/record_wire.h"
#include "launcher/rendezvous/shell/sqlite_statement.h"

namespace muster::rendezvous {
namespace {

constexpr int kApplication = 0x4d757374;  // "Must"; SQLite's application_id
constexpr int kFormat = 1;                // SQLite's user_version

// `number` keeps runs in the order in which they began.
constexpr const char* kSchema =
    "CREATE TABLE runs(number INTEGER PRIMARY KEY AUTOINCREMENT, run BLOB UNIQUE NOT NULL,"
    "                  record BLOB NOT NULL, sum INTEGER NOT NULL);"
    "CREATE TABLE lives(run BLOB PRIMARY KEY NOT NULL, record BLOB NOT NULL,"
    "                   sum INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE nodes(run BLOB NOT NULL, node BLOB NOT NULL, record BLOB NOT NULL,"
    "                   sum INTEGER NOT NULL, PRIMARY KEY(run, node)) WITHOUT ROWID;"
    "CREATE TABLE keys(job BLOB NOT NULL, generation INTEGER NOT NULL, key BLOB NOT NULL,"
    "                  value BLOB NOT NULL, sum INTEGER NOT NULL,"
    "                  PRIMARY KEY(job, generation, key)) WITHOUT ROWID;";
// One row, once there was a commit: how many there were. Journals of earlier builds lack it.
constexpr const char* kCounter =
    "CREATE TABLE IF NOT EXISTS commits(one INTEGER PRIMARY KEY, number INTEGER NOT NULL);";

std::string move_aside(const std::string& path) {
  return "; to begin anew, which forgets its jobs, move " + path + "* away";
}

class SqliteJournal : public Journal {
 public:
  SqliteJournal(std::unique_ptr<MarkWriter> mark, Database database, std::string path,
                std::string note)
      : path_(std::move(path)),
        note_(std::move(note)),
        mark_(std::move(mark)),
        database_(std::move(database)) {}

  absl::Status commit(std::span<const Action> actions) override {
    bool begun = false;
    bool good = true;
    for (const Action& action : actions) {
      const auto* persist = std::get_if<Persist>(&action);
      const auto* forget = std::get_if<Forget>(&action);
      const auto* close = std::get_if<CloseStore>(&action);
      if (persist == nullptr && forget == nullptr && close == nullptr) continue;
      if (!begun) good = begin_.run();
      begun = true;
      if (persist != nullptr) good = good && write(*persist);
      if (forget != nullptr) good = good && erase(forget->run);
      if (close != nullptr) {
        good = good && drop_keys_.bind(close->job).bind(close->generation).run();
      }
    }
    if (!begun) return absl::OkStatus();
    return end(good);
  }

  absl::Status put(const StoredKey& key) override {
    const bool good = begin_.run() && write(key);
    return end(good);
  }

  absl::StatusOr<JournalContents> read() override;

 private:
  // Counts the transaction in itself, and then in the mark.
  absl::Status end(bool good) {
    const std::int64_t commits = mark_->commits() + 1;
    good = good && count_.bind(commits).run() && commit_.run();
    return good ? mark_->write(commits) : failure();
  }

  bool write(const StoredKey& key) {
    return key.value ? put_key_.bind(key.job)
                           .bind(key.generation)
                           .bind(key.key)
                           .bind(*key.value)
                           .bind(checksum(*key.value))
                           .run()
                     : drop_key_.bind(key.job).bind(key.generation).bind(key.key).run();
  }

  bool write(const Persist& change) {
    const RunId& run = change.record.run;
    v1::JobRecord job;
    rendezvous::write(change.record, change.progress, job);
    const std::string bytes = job.SerializeAsString();
    if (!put_run_.bind(run).bind(bytes).bind(checksum(bytes)).run()) return false;
    if (change.life && !put(put_life_.bind(run), *change.life, v1::LifeRecord())) return false;
    for (const NodeRecord& node : change.nodes) {
      if (!put(put_node_.bind(run).bind(node.node), node, v1::NodeRecord())) return false;
    }
    for (const NodeName& node : change.removed) {
      if (!drop_node_.bind(run).bind(node).run()) return false;
    }
    return true;
  }

  template <class Record, class Message>
  static bool put(Statement& bound, const Record& record, Message message) {
    rendezvous::write(record, message);
    const std::string bytes = message.SerializeAsString();
    return bound.bind(bytes).bind(checksum(bytes)).run();
  }

  bool erase(const RunId& run) {
    return drop_run_.bind(run).run() && drop_life_.bind(run).run() && drop_nodes_.bind(run).run();
  }

  absl::Status failure() const {
    return absl::UnavailableError(path_ + ": " + sqlite3_errmsg(database_.get()));
  }
  absl::Status damaged(const std::string& what) const {
    return absl::DataLossError(path_ + " is damaged (" + what + ")" + move_aside(path_));
  }

  absl::Status read_runs(std::map<RunId, RunRecord>& runs, std::vector<RunId>& order);
  absl::Status read_lives(std::map<RunId, RunRecord>& runs);
  absl::Status read_nodes(std::map<RunId, RunRecord>& runs);
  absl::Status read_keys(std::vector<StoredKey>& keys);

  std::string path_;
  std::string note_;
  std::unique_ptr<MarkWriter> mark_;  // goes after the database
  Database database_;
  Statement begin_{database_.get(), "BEGIN IMMEDIATE"};
  Statement commit_{database_.get(), "COMMIT"};
  Statement count_{database_.get(), "REPLACE INTO commits VALUES(1, ?)"};
  Statement put_run_{database_.get(),
                     "INSERT INTO runs(run, record, sum) VALUES(?1, ?2, ?3) "
                     "ON CONFLICT(run) DO UPDATE SET record = ?2, sum = ?3"};
  Statement put_life_{database_.get(), "REPLACE INTO lives VALUES(?, ?, ?)"};
  Statement put_node_{database_.get(), "REPLACE INTO nodes VALUES(?, ?, ?, ?)"};
  Statement drop_node_{database_.get(), "DELETE FROM nodes WHERE run = ? AND node = ?"};
  Statement drop_run_{database_.get(), "DELETE FROM runs WHERE run = ?"};
  Statement drop_life_{database_.get(), "DELETE FROM lives WHERE run = ?"};
  Statement drop_nodes_{database_.get(), "DELETE FROM nodes WHERE run = ?"};
  Statement put_key_{database_.get(), "REPLACE INTO keys VALUES(?, ?, ?, ?, ?)"};
  Statement drop_key_{database_.get(),
                      "DELETE FROM keys WHERE job = ? AND generation = ? AND key = ?"};
  Statement drop_keys_{database_.get(), "DELETE FROM keys WHERE job = ? AND generation = ?"};
};

// ---------------------------------------------------------------- reading

absl::Status SqliteJournal::read_runs(std::map<RunId, RunRecord>& runs, std::vector<RunId>& order) {
  Statement rows(database_.get(), "SELECT run, record, sum FROM runs ORDER BY number");
  while (rows.next()) {
    RunRecord run;
    const absl::Status read = read_row(rows.bytes(1), rows.number(2), run.job, run.progress);
    if (!read.ok()) return damaged(std::string(read.message()));
    if (run.job.run != rows.bytes(0)) return damaged("a run is filed under another name");
    order.push_back(run.job.run);
    runs[run.job.run] = std::move(run);
  }
  return rows.failed() ? damaged(sqlite3_errmsg(database_.get())) : absl::OkStatus();
}

absl::Status SqliteJournal::read_lives(std::map<RunId, RunRecord>& runs) {
  Statement rows(database_.get(), "SELECT run, record, sum FROM lives");
  while (rows.next()) {
    const auto run = runs.find(rows.bytes(0));
    if (run == runs.end()) return damaged("a generation of no run");
    absl::StatusOr<LifeRecord> life = read_life_row(rows.bytes(1), rows.number(2));
    if (!life.ok()) return damaged(std::string(life.status().message()));
    run->second.life = *std::move(life);
  }
  return rows.failed() ? damaged(sqlite3_errmsg(database_.get())) : absl::OkStatus();
}

absl::Status SqliteJournal::read_nodes(std::map<RunId, RunRecord>& runs) {
  Statement rows(database_.get(), "SELECT run, record, sum FROM nodes ORDER BY run, node");
  while (rows.next()) {
    const auto run = runs.find(rows.bytes(0));
    if (run == runs.end()) return damaged("a node of no run");
    absl::StatusOr<NodeRecord> node = read_node_row(rows.bytes(1), rows.number(2));
    if (!node.ok()) return damaged(std::string(node.status().message()));
    run->second.nodes.push_back(*std::move(node));
  }
  return rows.failed() ? damaged(sqlite3_errmsg(database_.get())) : absl::OkStatus();
}

absl::Status SqliteJournal::read_keys(std::vector<StoredKey>& keys) {
  Statement rows(database_.get(), "SELECT job, generation, key, value, sum FROM keys");
  while (rows.next()) {
    std::string value = rows.bytes(3);
    if (checksum(value) != rows.number(4)) return damaged("the checksum of a key is wrong");
    keys.push_back({rows.bytes(0), rows.number(1), rows.bytes(2), std::move(value)});
  }
  return rows.failed() ? damaged(sqlite3_errmsg(database_.get())) : absl::OkStatus();
}

absl::StatusOr<JournalContents> SqliteJournal::read() {
  std::map<RunId, RunRecord> runs;
  std::vector<RunId> order;
  JournalContents contents;
  for (const absl::Status& status :
       {read_runs(runs, order), read_lives(runs), read_nodes(runs), read_keys(contents.keys)}) {
    if (!status.ok()) return status;
  }
  for (const RunId& id : order) {
    wire::Border border;
    check_run(runs.at(id), border);
    if (!border.ok()) return damaged("run " + id + ": " + std::string(border.status().message()));
    contents.runs.push_back(std::move(runs.at(id)));
  }
  contents.note = std::exchange(note_, "");
  return contents;
}

// ---------------------------------------------------------------- opening

std::optional<std::int64_t> pragma(sqlite3* database, const char* sql) {
  Statement statement(database, sql);
  if (!statement.next()) return std::nullopt;
  return statement.number(0);
}

bool execute(sqlite3* database, const std::string& sql) {
  return sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
}

absl::Status in_use(const std::string& path) {
  return absl::AbortedError(path + " is in use by another process");
}

absl::Status cannot_use(sqlite3* database, const std::string& path) {
  const std::string why = sqlite3_errmsg(database);
  switch (sqlite3_errcode(database)) {
    case SQLITE_NOTADB: return absl::DataLossError(path + " is not a journal" + move_aside(path));
    case SQLITE_CORRUPT:
      return absl::DataLossError(path + " is damaged (" + why + ")" + move_aside(path));
    case SQLITE_BUSY: return in_use(path);
    default: return absl::UnavailableError(path + ": " + why);
  }
}

absl::Status check_format(sqlite3* database, const std::string& path) {
  const auto application = pragma(database, "PRAGMA application_id");
  const auto format = pragma(database, "PRAGMA user_version");
  if (!application || !format) return cannot_use(database, path);
  if (*application != kApplication) {
    return absl::FailedPreconditionError(path + " belongs to another program" + move_aside(path));
  }
  if (*format != kFormat) {
    return absl::FailedPreconditionError(
        path + " has format " + std::to_string(*format) + ", and this version of muster knows " +
        std::to_string(kFormat) + ": start the version that wrote it" + move_aside(path));
  }
  Statement check(database, "PRAGMA quick_check(1)");
  if (!check.next()) return cannot_use(database, path);
  std::string verdict = check.bytes(0);
  if (verdict == "ok") return absl::OkStatus();
  verdict.resize(std::min(verdict.size(), verdict.find('\n')));  // the first complaint
  return absl::DataLossError(path + " is damaged (" + verdict + ")" + move_aside(path));
}

// Two processes that open a journal at the same moment would take each other's draft for a damaged
// file. SQLite's own lock takes over from this one.
class OpeningLock {
 public:
  explicit OpeningLock(const std::string& journal)
      : folder_(::open(std::filesystem::path(journal).parent_path().c_str(),
                       O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    taken_ = ::flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }
  ~OpeningLock() {
    if (folder_ >= 0) ::close(folder_);
  }
  OpeningLock(const OpeningLock&) = delete;
  OpeningLock& operator=(const OpeningLock&) = delete;

  // By somebody else. Where folders cannot be locked nobody is kept out.
  bool taken() const { return taken_; }

 private:
  int folder_;
  bool taken_ = false;
};

absl::StatusOr<Database> open_database(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &raw,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | flags, nullptr);
  Database database(raw);
  if (raw == nullptr) return absl::UnavailableError(path + ": out of memory");
  if (opened != SQLITE_OK) return cannot_use(raw, path);
  return database;
}

// Whether closing the database brings the log into it and removes the log.
void checkpoint_on_close(sqlite3* database, bool on) {
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

// How many commits the database has counted; absent: it was never made to.
absl::StatusOr<std::optional<std::int64_t>> counted(sqlite3* database, const std::string& path) {
  Statement tables(database, "SELECT 1 FROM sqlite_schema WHERE name = 'commits'");
  if (!tables.next()) {
    if (tables.failed()) return cannot_use(database, path);
    return std::nullopt;
  }
  Statement rows(database, "SELECT number FROM commits");
  const bool any = rows.next();
  if (rows.failed()) return cannot_use(database, path);
  return any ? rows.number(0) : 0;
}

// A new journal appears whole or not at all, so that one that is empty or cut is never taken for
// a new one.
absl::Status create(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string draft = path + ".new";
  std::error_code error;
  for (const char* part : {"", "-journal"})
    fs::remove(draft + part, error);
  absl::StatusOr<Database> database = open_database(draft, SQLITE_OPEN_CREATE);
  if (!database.ok()) return database.status();
  const std::string ids = "PRAGMA application_id = " + std::to_string(kApplication) +
                          "; PRAGMA user_version = " + std::to_string(kFormat) + ";";
  if (!execute(database->get(), std::string("BEGIN;") + kSchema + kCounter + ids + "COMMIT;")) {
    return cannot_use(database->get(), draft);
  }
  database->reset();
  // Before the journal is there: an empty one without a mark is none of ours.
  const auto mark = MarkWriter::open(path, 0);
  if (!mark.ok()) return mark.status();
  fs::rename(draft, path, error);
  return error ? absl::UnavailableError(path + ": " + error.message()) : absl::OkStatus();
}

// SQLite takes a file of less than a header for an empty database.
absl::Status create_if_missing(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::uintmax_t kHeaderBytes = 100;
  std::error_code error;
  if (!fs::exists(path, error)) {
    const FoundMark found = find_mark(path);
    const bool unused = !found.there || (found.mark && found.mark->commits == 0);
    if (unused && !fs::exists(path + "-wal", error)) return create(path);
    return absl::DataLossError(path + " is gone, and what was last written to it is not" +
                               move_aside(path));
  }
  if (!fs::is_regular_file(path, error)) return absl::UnavailableError(path + " is not a file");
  if (fs::file_size(path, error) >= kHeaderBytes) return absl::OkStatus();
  return absl::DataLossError(path + " is damaged (it is cut)" + move_aside(path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> open_sqlite_journal(const std::string& path) {
  const OpeningLock lock(path);
  if (lock.taken()) return in_use(path);
  if (absl::Status status = create_if_missing(path); !status.ok()) return status;
  absl::StatusOr<Database> database = open_database(path, 0);
  if (!database.ok()) return database.status();
  checkpoint_on_close(database->get(), false);
  const bool set = execute(database->get(),
                           "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
                           "PRAGMA synchronous = NORMAL;");
  if (!set) return cannot_use(database->get(), path);
  if (absl::Status status = check_format(database->get(), path); !status.ok()) return status;
  const auto commits = counted(database->get(), path);
  if (!commits.ok()) return commits.status();
  Verdict verdict = judge(path, find_mark(path), *commits, this_boot());
  if (!verdict.damage.empty()) {
    return absl::DataLossError(path + " is damaged (" + verdict.damage + ")" + move_aside(path));
  }
  if (!execute(database->get(), kCounter)) return cannot_use(database->get(), path);
  absl::StatusOr<std::unique_ptr<MarkWriter>> mark = MarkWriter::open(path, commits->value_or(0));
  if (!mark.ok()) return mark.status();
  checkpoint_on_close(database->get(), true);
  return std::make_unique<SqliteJournal>(*std::move(mark), *std::move(database), path,
                                         std::move(verdict.note));
}

}  // namespace muster::rendezvous
