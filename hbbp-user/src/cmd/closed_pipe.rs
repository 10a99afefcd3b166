//! A reader of the output that has gone: it closed the pipe because it has read enough, which is not an error.

use std::io;

/// Whether anybody reads what is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reader {
    /// The output was taken.
    There,
    /// The pipe is closed.
    Gone,
}

/// Whether the reader still exists, from the outcome of a write; other errors are passed on.
pub(super) fn reader_after(written: io::Result<()>) -> io::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if is_closed(&error) => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

/// Ends output that is the only result where the reader has gone.
pub(super) fn up_to_a_closed_pipe<T: Default>(printed: anyhow::Result<T>) -> anyhow::Result<T> {
    let is_closed_pipe = |error: &anyhow::Error| {
        error
            .chain()
            .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_closed))
    };
    match printed {
        Err(error) if is_closed_pipe(&error) => Ok(T::default()),
        printed => printed,
    }
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_closed_pipe_is_not_an_error_and_a_full_disk_is() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(reader_after(Ok(())).unwrap(), Reader::There);
        assert_eq!(reader_after(Err(closed())).unwrap(), Reader::Gone);
        assert_eq!(
            reader_after(Err(full())).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        let printed = |error: io::Error| Err::<(), _>(error).context("failed to write");
        assert!(up_to_a_closed_pipe(printed(closed())).is_ok());
        assert!(up_to_a_closed_pipe(printed(full())).is_err());
    }
}
