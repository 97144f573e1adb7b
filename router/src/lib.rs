//! What SQL text says, as far as a pooler must know it: no I/O, no clock.
