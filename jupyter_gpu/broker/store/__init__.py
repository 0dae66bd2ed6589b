"""The only room with SQL: event log, tables and snapshots in one SQLite file, all or nothing."""
