// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/sqlite_journal.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sqlite3.h>
#include <utility>

#include "launcher/rendezvous/shell/record_wire.h"

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

// A prepared statement, used again and again.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    sqlite3_prepare_v3(database, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Bound values must live until the run is over.
  Statement& bind(const std::string& bytes) {
    // A null pointer would be NULL, and not the empty value.
    const char* data = bytes.empty() ? "" : bytes.data();
    sqlite3_bind_blob64(statement_, ++bound_, data, bytes.size(), SQLITE_STATIC);
    return *this;
  }
  Statement& bind(std::int64_t number) {
    sqlite3_bind_int64(statement_, ++bound_, number);
    return *this;
  }

  bool run() {
    const bool done = sqlite3_step(statement_) == SQLITE_DONE;
    reset();
    return done;
  }
  // True while there are rows; after false, failed() says why it ended.
  bool next() {
    const int result = sqlite3_step(statement_);
    failed_ = result != SQLITE_ROW && result != SQLITE_DONE;
    return result == SQLITE_ROW;
  }
  bool failed() const { return failed_; }
  std::string bytes(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
  }
  std::int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  void reset() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
    bound_ = 0;
  }

  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  bool failed_ = false;
};

struct Closer {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
using Database = std::unique_ptr<sqlite3, Closer>;

std::string move_aside(const std::string& path) {
  return "; to begin anew, which forgets its jobs, move " + path + "* away";
}

class SqliteJournal : public Journal {
 public:
  SqliteJournal(Database database, std::string path)
      : path_(std::move(path)), database_(std::move(database)) {}

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
    good = good && commit_.run();
    return good ? absl::OkStatus() : failure();
  }

  absl::Status put(const StoredKey& key) override {
    const bool good = key.value ? put_key_.bind(key.job)
                                      .bind(key.generation)
                                      .bind(key.key)
                                      .bind(*key.value)
                                      .bind(checksum(*key.value))
                                      .run()
                                : drop_key_.bind(key.job).bind(key.generation).bind(key.key).run();
    return good ? absl::OkStatus() : failure();
  }

  absl::StatusOr<JournalContents> read() override;

 private:
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
  Database database_;
  Statement begin_{database_.get(), "BEGIN IMMEDIATE"};
  Statement commit_{database_.get(), "COMMIT"};
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

absl::Status cannot_use(sqlite3* database, const std::string& path) {
  const std::string why = sqlite3_errmsg(database);
  switch (sqlite3_errcode(database)) {
    case SQLITE_NOTADB: return absl::DataLossError(path + " is not a journal" + move_aside(path));
    case SQLITE_CORRUPT:
      return absl::DataLossError(path + " is damaged (" + why + ")" + move_aside(path));
    case SQLITE_BUSY: return absl::UnavailableError(path + " is in use by another process");
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

absl::StatusOr<Database> open_database(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &raw,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | flags, nullptr);
  Database database(raw);
  if (raw == nullptr) return absl::UnavailableError(path + ": out of memory");
  if (opened != SQLITE_OK) return cannot_use(raw, path);
  return database;
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
  if (!execute(database->get(), std::string("BEGIN;") + kSchema + ids + "COMMIT;")) {
    return cannot_use(database->get(), draft);
  }
  database->reset();
  fs::rename(draft, path, error);
  return error ? absl::UnavailableError(path + ": " + error.message()) : absl::OkStatus();
}

// SQLite takes a file of less than a header for an empty database.
absl::Status create_if_missing(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::uintmax_t kHeaderBytes = 100;
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (!fs::exists(path + "-wal", error)) return create(path);
    return absl::DataLossError(path + " is gone, and what was last written to it is not" +
                               move_aside(path));
  }
  if (!fs::is_regular_file(path, error)) return absl::UnavailableError(path + " is not a file");
  if (fs::file_size(path, error) >= kHeaderBytes) return absl::OkStatus();
  return absl::DataLossError(path + " is damaged (it is cut)" + move_aside(path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> open_sqlite_journal(const std::string& path) {
  if (absl::Status status = create_if_missing(path); !status.ok()) return status;
  absl::StatusOr<Database> database = open_database(path, 0);
  if (!database.ok()) return database.status();
  const bool set = execute(database->get(),
                           "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
                           "PRAGMA synchronous = NORMAL;");
  if (!set) return cannot_use(database->get(), path);
  if (absl::Status status = check_format(database->get(), path); !status.ok()) return status;
  return std::make_unique<SqliteJournal>(*std::move(database), path);
}

}  // namespace muster::rendezvous
