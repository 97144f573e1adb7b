//! The deciding half of connection pooling: slots, waiters, budgets; decisions as data.
