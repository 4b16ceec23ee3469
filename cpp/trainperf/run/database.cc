#include "trainperf/run/database.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainperf {
namespace {

// Length of the well-formed UTF-8 sequence that `text` starts with; 0 when there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;  // overlong; surrogates
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;  // overlong; too large
  return length;
}

// File names need not be text; a reader would refuse the whole run for one of them.
bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string WithReplacements(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      result += "\xEF\xBF\xBD";  // U+FFFD
    } else {
      result.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace

absl::StatusOr<Database> Database::Open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database;
  database.db_.reset(raw);
  if (rc != SQLITE_OK) return database.Error();
  sqlite3_extended_result_codes(raw, 1);
  return database;
}

absl::Status Database::Execute(const char* sql) {
  if (!db_) return absl::FailedPreconditionError("the run file is closed");
  return sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : Error();
}

absl::StatusOr<Database::Statement*> Database::Prepare(const char* sql) {
  if (!db_) return absl::FailedPreconditionError("the run file is closed");
  Statement& statement = statements_[sql];
  if (!statement.handle) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr) != SQLITE_OK) return Error();
    statement.handle.reset(raw);
  }
  return &statement;
}

void Database::Bind(sqlite3_stmt* statement, int index, std::string_view text) {
  if (IsUtf8(text)) {
    // Static: the text outlives the step that follows, after which StepAndReset lets go of it.
    sqlite3_bind_text(statement, index, text.empty() ? "" : text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  } else {
    const std::string clean = WithReplacements(text);
    sqlite3_bind_text(statement, index, clean.data(), static_cast<int>(clean.size()), SQLITE_TRANSIENT);
  }
}

absl::Status Database::StepAndReset(sqlite3_stmt* statement) {
  int rc = sqlite3_step(statement);
  while (rc == SQLITE_ROW) rc = sqlite3_step(statement);
  absl::Status status = rc == SQLITE_DONE ? absl::OkStatus() : Error();
  sqlite3_reset(statement);
  return status;
}

absl::Status Database::RunWithValues(const char* sql, const int64_t* values, int count, const char* text) {
  TRAINPERF_ASSIGN_OR_RETURN(Statement* const statement, Prepare(sql));
  sqlite3_stmt* const handle = statement->handle.get();
  std::vector<int64_t>& bound = statement->values;
  int index = 0;
  if (text != nullptr) Bind(handle, ++index, std::string_view(text));
  const bool is_first = bound.empty();
  bound.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    ++index;
    if (!is_first && bound[static_cast<size_t>(i)] == values[i]) continue;
    bound[static_cast<size_t>(i)] = values[i];
    Bind(handle, index, values[i]);
  }
  return StepAndReset(handle);
}

absl::StatusOr<std::string> Database::Text(const char* sql) {
  TRAINPERF_ASSIGN_OR_RETURN(const Statement* prepared, Prepare(sql));
  sqlite3_stmt* const statement = prepared->handle.get();
  const int rc = sqlite3_step(statement);
  std::string result;
  absl::Status status;
  if (rc == SQLITE_ROW) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    if (text != nullptr) result = text;
  } else if (rc != SQLITE_DONE) {
    status = Error();
  }
  sqlite3_reset(statement);
  if (!status.ok()) return status;
  return result;
}

absl::Status Database::Error() const {
  if (!db_) return absl::ResourceExhaustedError("out of memory");
  const std::string message = sqlite3_errmsg(db_.get());
  switch (sqlite3_errcode(db_.get()) & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError("the disk is full");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat("another process has the file locked: ", message));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(absl::StrCat(message, " (SQLite ", sqlite3_extended_errcode(db_.get()), ", errno ",
                                              sqlite3_system_errno(db_.get()), ")"));
  }
}

void Database::Abandon() {
  for (auto& [sql, statement] : statements_) static_cast<void>(statement.handle.release());
  statements_.clear();
  static_cast<void>(db_.release());
}

absl::Status Database::Close() {
  statements_.clear();
  if (!db_) return absl::OkStatus();
  sqlite3* raw = db_.release();
  if (sqlite3_close(raw) == SQLITE_OK) return absl::OkStatus();
  db_.reset(raw);
  return Error();
}

}  // namespace trainperf
