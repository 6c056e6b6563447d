onmessage = (message) => {
  const { id, ms } = message.data;
  setTimeout(() => postMessage(id), ms);
};
