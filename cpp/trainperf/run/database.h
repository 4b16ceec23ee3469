// A thin owner of one SQLite connection.
//
//   TRAINPERF_ASSIGN_OR_RETURN(Database db, Database::Open(path));
//   TRAINPERF_RETURN_IF_ERROR(db.Execute("BEGIN"));
//   TRAINPERF_RETURN_IF_ERROR(db.Run("REPLACE INTO tier VALUES (?, ?, ?)", probe, tier, why));
//
// Used by one thread at a time.

#ifndef TRAINPERF_RUN_DATABASE_H_
#define TRAINPERF_RUN_DATABASE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainperf/base/status_macros.h"

namespace trainperf {

class Database {
 public:
  // The file exists already.
  static absl::StatusOr<Database> Open(const std::string& path);
  Database() = default;
  Database(Database&&) = default;
  Database& operator=(Database&&) = default;

  // Any number of statements; rows are ignored.
  absl::Status Execute(const char* sql);

  // One statement, prepared once: `sql` must live as long as this object, and is known by its address.
  template <typename... Args>
  absl::Status Run(const char* sql, const Args&... args) {
    TRAINPERF_ASSIGN_OR_RETURN(const Statement* statement, Prepare(sql));
    [[maybe_unused]] int index = 0;  // of no arguments nothing is bound
    (Bind(statement->handle.get(), ++index, args), ...);
    return StepAndReset(statement->handle.get());
  }

  // For statements of many columns: `values` are bound after `text` (when that is not null). Those that are what they
  // were in the row before, most of them, stay bound; so `sql` must not be given to Run() too.
  absl::Status RunWithValues(const char* sql, const int64_t* values, int count, const char* text = nullptr);

  // First column of the first row, as text; "" when there is none.
  absl::StatusOr<std::string> Text(const char* sql);

  // Gives up the connection without touching it: for a forked child, where using it could harm the parent's file.
  void Abandon();
  absl::Status Close();

 private:
  struct Closer {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  struct Statement {
    std::unique_ptr<sqlite3_stmt, Finalizer> handle;
    std::vector<int64_t> values;  // as bound by RunWithValues
  };

  absl::StatusOr<Statement*> Prepare(const char* sql);
  absl::Status StepAndReset(sqlite3_stmt* statement);
  absl::Status Error() const;
  static void Bind(sqlite3_stmt* statement, int index, int64_t value) { sqlite3_bind_int64(statement, index, value); }
  static void Bind(sqlite3_stmt* statement, int index, int value) { sqlite3_bind_int64(statement, index, value); }
  static void Bind(sqlite3_stmt* statement, int index, uint32_t value) { sqlite3_bind_int64(statement, index, value); }
  static void Bind(sqlite3_stmt* statement, int index, std::string_view text);

  std::unique_ptr<sqlite3, Closer> db_;
  absl::flat_hash_map<const void*, Statement> statements_;  // destroyed before db_
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_DATABASE_H_
