//! The connection of a client, which ends when the client takes nothing of an answer for too long.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::{Error, ErrorKind, IoSlice};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Reads as the stream does; a write that waits longer than `time` is an error, which ends the connection.
pub(crate) struct Connection {
    stream: TcpStream,
    time: Duration,
    /// While a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, time: Duration) -> Self {
        Self { stream, time, waiting: None }
    }

    /// What a write has found, or an error if it has waited too long.
    fn limit<R>(
        &mut self,
        context: &mut Context<'_>,
        found: Poll<Result<R, Error>>,
    ) -> Poll<Result<R, Error>> {
        if found.is_ready() {
            self.waiting = None;
            return found;
        }
        let time = self.time;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(time)));
        waiting.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        let found = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limit(context, found)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        let found = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.limit(context, found)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
