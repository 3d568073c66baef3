// SPDX-License-Identifier: Apache-2.0
//
// SQLite's handles, freed by themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <sqlite3.h>
#include <string>

namespace muster::rendezvous {

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

}  // namespace muster::rendezvous
