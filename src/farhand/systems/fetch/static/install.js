const link = document.getElementById("address");
link.textContent = new URL(link.getAttribute("href"), location.href).href;
