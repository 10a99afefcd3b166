//! A byte and open files over a Unix socket (unix(7), `SCM_RIGHTS`).

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::functions::MAX_DEBUG_FILES;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Files of one message: a file and its debug files.
pub(super) const MAX_FILES: usize = 1 + MAX_DEBUG_FILES;

/// Sends a byte with files.
pub fn send(socket: impl AsFd, byte: u8, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&[byte])],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    if sent == 1 {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives a byte with files; `None` if the other end is closed.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(u8, Vec<File>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = loop {
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<File> = files.flatten().map(|file: OwnedFd| File::from(file)).collect();
    let [byte] = byte;
    Ok((received.bytes == 1).then_some((byte, files)))
}
