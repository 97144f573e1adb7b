//! What a client sends, after its startup packet. One type a file.

mod bind;
mod close;
mod copy_data;
mod copy_done;
mod copy_fail;
mod describe;
mod execute;
mod flush;
mod function_call;
mod gss_response;
mod parse;
mod password_message;
mod query;
mod sasl_initial_response;
mod sasl_response;
mod sync;
mod target;
mod terminate;

pub use bind::{Bind, BindHead};
pub use close::Close;
pub use copy_data::CopyData;
pub use copy_done::CopyDone;
pub use copy_fail::CopyFail;
pub use describe::Describe;
pub use execute::Execute;
pub use flush::Flush;
pub use function_call::FunctionCall;
pub use gss_response::GSSResponse;
pub use parse::{Parse, ParseHead};
pub use password_message::PasswordMessage;
pub use query::Query;
pub use sasl_initial_response::SASLInitialResponse;
pub use sasl_response::SASLResponse;
pub use sync::Sync;
pub use target::Target;
pub use terminate::Terminate;
